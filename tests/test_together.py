"""Where one process of a run fails, all end: connections in one process, then processes that fail for real."""

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

from mgexp import together as links
from mgexp import together as module
from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError
from mgexp.together import Failure, Lifeline, Link, together


@contextmanager
def lifelines(count=2):
    """Those of ``count`` processes, in this one."""
    pairs = {rank: _pair() for rank in range(1, count)}
    first = Lifeline(0, {rank: Link(ours) for rank, (ours, _) in pairs.items()}, None)
    found = [first, *(Lifeline(rank, {0: Link(its)}, None) for rank, (_, its) in pairs.items())]
    try:
        yield found
    finally:
        for one in found:
            one._gone.set()
            one.close()


def _pair():
    """Both ends of a connection over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        its = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    return ours, its


def wait_for(lifeline):
    assert lifeline._known.wait(5)
    return lifeline.failure


@pytest.fixture(autouse=True)
def exits(monkeypatch):
    """Exit codes, instead of ends of the test."""
    found = []
    monkeypatch.setattr(module.os, "_exit", found.append)
    monkeypatch.setattr(module, "NEWS_SECONDS", 1.0)
    return found


def test_the_others_learn_why_one_fails():
    with lifelines(3) as (first, second, third):
        assert second.fail(TrainingError("the loss is nan")) == Failure(1, "the loss is nan")
        assert wait_for(first) == wait_for(third) == Failure(1, "the loss is nan")


def test_an_error_that_follows_from_another_s_gives_way_to_it():
    with lifelines(3) as (first, second, third):
        own = TrainingError("the loss is nan")
        second.fail(own)
        assert first.fail(RuntimeError("connection closed by peer")).rank == 1
        assert third.fail(RuntimeError("connection closed by peer")).rank == 1


def test_an_error_of_its_own_is_told_where_nobody_failed_before():
    with lifelines() as (first, second):
        assert first.fail(RuntimeError("no memory")).rank == 0
        assert "RuntimeError: no memory" in wait_for(second).message


def test_problems_of_bad_input_stay_such():
    with lifelines() as (first, second):
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


def test_a_connection_that_ends_without_a_word_is_a_process_that_was_killed():
    with lifelines() as (first, second):
        second.close()
        assert "was killed" in wait_for(first).message


def test_a_farewell_is_no_failure():
    with lifelines(3) as (first, second, third):
        second.leave()
        third.fail(TrainingError("later"))
        assert wait_for(first) == Failure(2, "later")


@pytest.mark.parametrize(
    ("error", "code"), [(TrainingError("the loss is nan"), 1), (InputError(["a.mp4"]), 2)]
)
def test_who_does_not_end_is_ended(error, code, exits, monkeypatch, caplog):
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.05)
    with lifelines() as (first, second):
        second.fail(error)
        wait_for(first)
        end = time.monotonic() + 5
        while not exits and time.monotonic() < end:
            time.sleep(0.01)
    assert exits == [code]
    assert str(error).splitlines()[-1] in caplog.text


def test_who_ends_by_itself_is_not_ended(exits, monkeypatch):
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.2)
    with lifelines() as (first, second):
        second.fail(TrainingError("the loss is nan"))
        first.fail(RuntimeError("connection closed"))
        time.sleep(0.4)
    assert exits == []


def test_a_forked_process_does_not_hold_the_connection():
    with lifelines() as (first, second):
        child = os.fork()
        if not child:
            time.sleep(60)
        try:
            second.close()
            assert "was killed" in wait_for(first).message
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_a_stranger_is_not_taken_for_a_process():
    ours, its = _pair()
    its.sendall(b"GET / HTTP/1.1\r\n\n")
    assert links._hear_rank(Link(ours), "word") is None
    ours, its = _pair()
    its.sendall(b'{"word": "other", "rank": 1}\n')
    assert links._hear_rank(Link(ours), "word") is None


def test_one_process_is_left_as_it_is():
    with pytest.raises(KeyError), together(Processes()):
        raise KeyError


SCRIPT = """
import os, signal, subprocess, sys, time
import torch, torch.distributed
from mgexp import dist, links
from mgexp.errors import InputError, TrainingError
from mgexp.together import together

def reduce():
    torch.distributed.all_reduce(torch.ones(1))

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

links.JOIN_SECONDS = float(os.environ.get("JOIN_SECONDS", 60))
processes = dist.from_environment()
try:
    with together(processes), dist.joined(processes, torch.device("cpu")):
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
        errors = [process.communicate(timeout=60)[1] for process in started]
        seconds = time.monotonic() - start
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [
        (process.returncode, error) for process, error in zip(started, errors, strict=True)
    ], seconds


SOON = 20.0
"""Seconds within which all have ended: the grace of 5, and what Python takes to end on a busy machine."""


@pytest.mark.slow
@pytest.mark.parametrize("other", ["reduce()", "time.sleep(50)"], ids=["in a collective", "busy"])
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
@pytest.mark.parametrize("other", ["reduce()", "time.sleep(50)"], ids=["in a collective", "busy"])
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
