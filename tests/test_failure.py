"""Where one process of a run fails, all end: watches in one process, then processes that fail for real."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from torch.distributed import HashStore

from mgexp import failure as module
from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError
from mgexp.failure import KILLED, Failure, Watch, failing_together
from mgexp.stop import Interrupted

BROKEN = RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]")


@contextmanager
def watches(count=2, before_force=None):
    """Those of ``count`` processes, in this one."""
    store = HashStore()
    for rank in range(count):
        store.set(module._beat_key(rank), "0")
    found = [Watch(rank, count, store, before_force) for rank in range(count)]
    try:
        yield found
    finally:
        for one in found[::-1]:
            one.leave()


def wait_for(watch):
    assert watch._known.wait(5)
    return watch.failure


def kill(watch):
    """Its heart stops."""
    watch._is_ending.set()
    watch._thread.join()


@pytest.fixture(autouse=True)
def exits(monkeypatch):
    """Exit codes, instead of ends of the test. A second is a 20th of one."""
    found = []
    monkeypatch.setattr(module.os, "_exit", found.append)
    for name in ("BEAT_SECONDS", "NEWS_SECONDS", "GRACE_SECONDS"):
        monkeypatch.setattr(module, name, getattr(module, name) / 20)
    return found


def test_the_others_learn_why_one_fails():
    with watches(3) as (first, second, third):
        assert second.fail(TrainingError("the loss is nan")) == Failure(1, "the loss is nan")
        assert wait_for(first) == wait_for(third) == Failure(1, "the loss is nan")


def test_an_error_that_follows_from_another_s_gives_way_to_it():
    with watches(3) as (first, second, third):
        second.fail(TrainingError("the loss is nan"))
        assert first.fail(BROKEN).rank == 1
        assert third.fail(InputError(["found a little later"])).rank == 1


def test_an_error_of_its_own_is_told_where_nobody_failed_before():
    with watches() as (first, second):
        assert first.fail(RuntimeError("no memory")).rank == 0
        assert "RuntimeError: no memory" in wait_for(second).message


def test_problems_of_bad_input_stay_such():
    with watches() as (first, second):
        second.fail(InputError(["a.mp4 is broken", "b.mp4 too"]))
        found = wait_for(first)
    whole, line = found.seen_from(0), found.seen_from(2)
    assert isinstance(whole, InputError) and whole.problems == ("a.mp4 is broken", "b.mp4 too")
    assert isinstance(line, InputError) and "process 1 failed" in str(line)


def test_an_unexpected_error_is_told_with_its_traceback():
    try:
        _ = 1 // 0
    except ZeroDivisionError as error:
        failure = Failure.of(3, error)
    whole, line = (str(failure.seen_from(rank)) for rank in (0, 1))
    assert whole.startswith("process 3 failed: Traceback") and "_ = 1 // 0" in whole
    assert line == "process 3 failed: ZeroDivisionError: integer division or modulo by zero"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_without_a_heart_beat_was_killed(rank):
    with watches(3) as found:
        kill(found.pop(rank))
        assert [wait_for(one) for one in found] == [Failure(rank, KILLED)] * 2


def test_a_broken_connection_is_blamed_on_the_process_that_was_killed():
    with watches(3) as (first, second, third):
        kill(third)
        assert first.fail(BROKEN) == Failure(2, KILLED)
        assert wait_for(second) == Failure(2, KILLED)


def test_a_broken_connection_between_living_processes_is_told_as_it_is():
    with watches() as (first, _):
        assert "Connection closed by peer" in first.fail(BROKEN).message


def test_a_process_that_left_is_not_missed(exits):
    with watches(3) as (first, second, third):
        second.leave()
        time.sleep(1.5 * module.SILENT_BEATS * module.BEAT_SECONDS)
        third.fail(TrainingError("later"))
        assert wait_for(first) == Failure(2, "later")


def test_the_end_of_the_store_is_that_of_the_process_that_holds_it(monkeypatch):
    with watches() as (_, second):

        def gone(*_):
            raise RuntimeError("connection reset")

        monkeypatch.setattr(second, "_beats", gone)
        assert wait_for(second) == Failure(0, KILLED)


@pytest.mark.parametrize(
    ("error", "code"), [(TrainingError("the loss is nan"), 1), (InputError(["a.mp4"]), 2)]
)
def test_who_does_not_end_is_ended(error, code, exits, caplog):
    with watches() as (first, second):
        second.fail(error)
        wait_for(first)
        end = time.monotonic() + 5
        while not exits and time.monotonic() < end:
            time.sleep(0.01)
    assert exits == [code]
    assert str(error).splitlines()[-1] in caplog.text


def test_a_signal_is_told_before_a_process_is_ended(exits):
    told = []
    with watches(before_force=lambda name: told.append((name, [*exits]))) as (first, second):
        second.fail(Interrupted("SIGUSR2"))
        wait_for(first)
        end = time.monotonic() + 5
        while not exits and time.monotonic() < end:
            time.sleep(0.01)
    assert told == [("SIGUSR2", [])] and exits == [4]


def test_who_ends_by_itself_is_not_ended(exits):
    with watches() as (first, second):
        second.fail(TrainingError("the loss is nan"))
        first.fail(RuntimeError("connection closed"))
        time.sleep(2 * module.GRACE_SECONDS)
    assert exits == []


def test_one_process_is_left_as_it_is():
    with pytest.raises(KeyError), failing_together(Processes()):
        raise KeyError


SCRIPT = """
import os, signal, subprocess, sys, time
import torch, torch.distributed
from mgexp import dist, failure
from mgexp.errors import InputError, TrainingError
from mgexp.failure import failing_together

def reduce():
    torch.distributed.all_reduce(torch.ones(1))

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

failure.JOIN_SECONDS = float(os.environ.get("JOIN_SECONDS", 60))
processes = dist.from_environment()
try:
    with failing_together(processes), dist.joined(processes, torch.device("cpu")):
        reduce()
        print("ready", flush=True)
        BODY
except InputError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
except TrainingError as error:
    print(error, file=sys.stderr)
    sys.exit(1)
"""


def run(bodies, env=()):
    """Processes that do ``bodies``, as a launcher starts them: (exit code, standard error) of each, and seconds.

    The seconds are those from when the first one is ready to the end of the last.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    root = str(Path(__file__).parents[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT.replace("BODY", body)],
            env={
                **os.environ,
                **common,
                "PYTHONPATH": root,
                "RANK": str(rank),
                "WORLD_SIZE": str(len(bodies)),
                **dict(env),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, body in enumerate(bodies)
    ]
    try:
        started[0].stdout.readline()
        start = time.monotonic()
        errors = [process.communicate(timeout=90)[1] for process in started]
        seconds = time.monotonic() - start
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [
        (process.returncode, error) for process, error in zip(started, errors, strict=True)
    ], seconds


SOON = 30.0
"""Seconds within which all have ended. A killed process is missed after 15, and 5 are for ending by itself."""


@pytest.mark.slow
@pytest.mark.parametrize("other", ["reduce()", "time.sleep(70)"], ids=["in a collective", "busy"])
@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("raise TrainingError('the loss is nan')", 1, "process 1 failed: the loss is nan"),
        ("raise InputError(['a.mp4 is broken'])", 2, "a.mp4 is broken"),
        ("print(1 // 0)", 1, "process 1 failed: Traceback"),
    ],
)
def test_a_process_that_fails_ends_all_with_its_message(body, code, said, other):
    found, seconds = run([other, body, other])
    assert [one for one, _ in found] == [code] * 3
    assert said in found[0][1]
    assert "process 1 failed" in found[2][1]
    assert seconds < SOON


@pytest.mark.slow
@pytest.mark.parametrize("other", ["reduce()", "time.sleep(70)"], ids=["in a collective", "busy"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_is_killed_ends_all(rank, other):
    bodies = [other] * 3
    bodies[rank] = "kill()"
    found, seconds = run(bodies)
    codes = [code for code, _ in found]
    assert codes.pop(rank) == -signal.SIGKILL
    assert codes == [1, 1]
    assert all(f"process {rank} failed: it was killed" in found[r][1] for r in {0, 1, 2} - {rank})
    assert seconds < SOON


@pytest.mark.slow
def test_a_process_that_never_comes_is_missed(tmp_path):
    found, _ = run(["pass"], env={"WORLD_SIZE": "2", "JOIN_SECONDS": "5"}.items())
    ((code, error),) = found
    assert code == 1
    assert "process 0 did not meet the other 1 within 5 s" in error
