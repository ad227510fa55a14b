"""What the tests of run_net.py read from run folders, and how they interrupt a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import torch
from tiny import TOOL

from mgexp.record.run_dir import RunDir


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def last_checkpoint(folder):
    run = RunDir(folder)
    return torch.load(run.checkpoint(run.checkpoint_steps()[-1]), weights_only=True)


def tensors(folder):
    """Name and tensor of all that a run learned: weights, statistics, momenta, evaluated weights."""
    state = last_checkpoint(folder)
    momenta = state["optimizer"]["state"]
    yield from ((f"model {name}", value) for name, value in state["model"].items())
    yield from ((f"momentum {key}", momenta[key]["momentum_buffer"]) for key in momenta)
    evaluated = torch.load(folder / "model.pt", weights_only=True)
    yield from ((f"evaluated {name}", value) for name, value in evaluated.items())


def assert_bit_identical(folder, other):
    found, wanted = dict(tensors(folder)), dict(tensors(other))
    assert found.keys() == wanted.keys()
    differing = [name for name, value in wanted.items() if not torch.equal(found[name], value)]
    assert differing == []


def losses(folder):
    return [(line["step"], line["loss"]) for line in read_lines(folder / "metrics.jsonl")]


def interrupt_in(step, monkeypatch):
    """SIGTERM comes while ``step`` is computed."""
    from mgexp.train import loop

    original = loop.seed_step

    def terminated_step(seed, number):
        if number == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(seed, number)

    monkeypatch.setattr(loop, "seed_step", terminated_step)


def torchrun(arguments):
    """Two processes on this machine; their output."""
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run(
        [sys.executable, "-m", *launch, str(TOOL), *arguments, "--launcher", "torchrun"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=200,
        capture_output=True,
        text=True,
    ).stdout


def refused(main, capsys, arguments):
    """The message of a start that is refused."""
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.count("run_net.py: ") == 1
    return message
