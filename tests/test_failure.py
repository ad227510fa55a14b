"""Every process reports the first failure of a run."""

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from several_processes import meeting
from torch.distributed import HashStore

from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError
from mgexp.failure import Failure, failing_together, first_failure
from mgexp.stop import Interrupted


@pytest.mark.parametrize(
    "error",
    [TrainingError("the loss is nan"), InputError(["a.mp4", "b.mp4"]), Interrupted("SIGUSR2")],
)
def test_the_first_failure_stays(error):
    store = HashStore()
    first = Failure.of(1, error)
    assert first_failure(store, first) == first
    assert first_failure(store, Failure.of(0, RuntimeError("closed by peer"))) == first
    found = first.as_error()
    assert type(found) is type(error)
    assert getattr(found, "problems", None) == getattr(error, "problems", None)


def test_an_error_of_another_process_keeps_its_problems():
    error = InputError(["a.mp4:\n  is empty", "b.mp4"])
    found = pickle.loads(pickle.dumps(error))
    assert (str(found), found.problems) == (str(error), error.problems)


def test_an_unexpected_error_has_its_traceback():
    try:
        _ = 1 // 0
    except ZeroDivisionError as error:
        message = str(Failure.of(3, error).as_error())
    assert message.startswith("process 3 failed: Traceback") and "_ = 1 // 0" in message


def test_one_process_is_left_as_it_is():
    with pytest.raises(KeyError), failing_together(Processes()):
        raise KeyError


SCRIPT = """
import os, signal, sys
import torch, torch.distributed
from mgexp import dist, failure
from mgexp.errors import InputError, TrainingError

failure.JOIN_SECONDS = float(os.environ.get("JOIN_SECONDS", 60))
processes = dist.from_environment()
try:
    with failure.failing_together(processes), dist.joined(processes, torch.device("cpu")):
        torch.distributed.all_reduce(torch.ones(1))
        if processes.rank == 1:
            BODY
        torch.distributed.all_reduce(torch.ones(1))
except InputError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
except TrainingError as error:
    print(error, file=sys.stderr)
    sys.exit(1)
"""


def run(body, num_started=2, **env):
    """Return (exit code, standard error) of processes of which process 1 executes ``body``."""
    common = {
        **meeting(),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "WORLD_SIZE": "2",
        **env,
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT.replace("BODY", body)],
            env={**os.environ, **common, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(num_started)
    ]
    try:
        errors = [process.communicate(timeout=300)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [(process.returncode, text) for process, text in zip(processes, errors, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("raise TrainingError('the loss is nan')", 1, "process 1 failed: the loss is nan"),
        ("raise InputError(['a.mp4 is broken'])", 2, "a.mp4 is broken"),
        ("print(1 // 0)", 1, "process 1 failed: Traceback"),
    ],
)
def test_a_process_that_fails_ends_the_other_with_its_message(body, code, words):
    ended = run(body)
    assert [number for number, _ in ended] == [code] * 2
    assert words in ended[0][1]


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_other():
    ended = run("os.kill(os.getpid(), signal.SIGKILL)")
    assert [code for code, _ in ended] == [1, -signal.SIGKILL]


@pytest.mark.slow
def test_a_process_that_never_comes_is_missed():
    ((code, text),) = run("pass", num_started=1, JOIN_SECONDS="5")
    assert code == 1 and "process 0 did not meet the other 1" in text
