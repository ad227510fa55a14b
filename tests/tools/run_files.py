"""What the tests of run_net.py read from run folders, and how they interrupt a run."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
from several_processes import meeting
from tiny import TOOL

from mgexp.run.folder import RunDir

OFTEN = ("TRAIN.CHECKPOINT_MINUTES", 0.000001)
"""The keys with which each step is saved."""


def contents(folder):
    """Every file and its bytes."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def tensors(folder):
    """Name and tensor of all that a run learned: weights, statistics, moments, evaluated weights."""
    run = RunDir(folder)
    state = torch.load(run.checkpoint(run.checkpoint_steps()[-1]), weights_only=True)
    yield from ((f"model {name}", value) for name, value in state["model"].items())
    yield from moments(state["optimizer"])
    evaluated = torch.load(folder / "model.pt", weights_only=True)
    yield from ((f"evaluated {name}", value) for name, value in evaluated.items())


def moments(optimizer):
    """Name and tensor of all that an optimizer's state holds; numbers of steps as tensors."""
    for key, values in optimizer.items():
        yield from ((f"{name} {key}", torch.as_tensor(value)) for name, value in values.items())


def assert_bit_identical(folder, other):
    found, wanted = dict(tensors(folder)), dict(tensors(other))
    assert found.keys() == wanted.keys()
    differing = [name for name, value in wanted.items() if not torch.equal(found[name], value)]
    assert differing == []


def losses(folder):
    return [(line["step"], line["loss"]) for line in read_lines(folder / "metrics.jsonl")]


def assert_same(folder, other):
    """To the last bit: all that was learned, and the losses of all steps."""
    assert_bit_identical(folder, other)
    assert losses(folder) == losses(other)


def stop_in(step, main, arguments):
    """A run to which SIGTERM comes while ``step`` is computed."""
    from mgexp.train import loop

    original = loop.seed_step

    def terminated_step(seed, number):
        if number == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(seed, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "seed_step", terminated_step)
        assert main(arguments) == 4


def torchrun(arguments, count=2):
    """Processes on this machine; their output."""
    done = torchrun_script(TOOL, arguments, count)
    assert done.returncode == 0, done.stderr
    return done.stdout


def torchrun_script(script, arguments, count=2):
    """What became of processes that run a script like run_net.py."""
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    return subprocess.run(
        [sys.executable, "-m", *launch, str(script), *arguments, "--launcher", "torchrun"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
        timeout=300,
        capture_output=True,
        text=True,
    )


def started_apart(script, arguments, count=2):
    """The same without torchrun, as on a cluster: each process is started with RANK and where they meet."""
    common = {**os.environ, **meeting(), "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, str(script), *arguments, "--launcher", "torchrun"],
            env={**common, "RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def refused(main, capsys, arguments):
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.count("run_net.py: ") == 1
    return message
