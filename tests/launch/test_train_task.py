"""What a task of a job does with what its run returns, and with signals; the run and the job are stand-ins."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import get_context
from types import SimpleNamespace

import pytest
from submitit.core.utils import DelayedSubmission

from mgexp.dist import Processes
from mgexp.launch import hold_signals
from mgexp.launch import task as module
from mgexp.launch.resources import Resources
from mgexp.launch.run import RunOptions
from mgexp.launch.task import Submission, TrainTask, _Deadline
from mgexp.run.environment import REPOSITORY
from mgexp.run.folder import LaunchDir
from mgexp.train.result import Outcome


@pytest.fixture
def task(tmp_path, monkeypatch):
    """A task whose options are never read."""
    monkeypatch.chdir(tmp_path)
    submission = Submission(LaunchDir(tmp_path), REPOSITORY, tmp_path, Resources(), "x")
    return TrainTask(RunOptions(tmp_path), submission)


@pytest.fixture
def queued_again(monkeypatch):
    """Whether submitit's handler got the signal; it ends the process, as submitit's does."""
    found = []

    def handler(number, frame):
        found.append(number)
        raise SystemExit(255)

    before = signal.signal(signal.SIGUSR2, handler)
    yield found
    signal.signal(signal.SIGUSR2, before)


def in_job(monkeypatch, run, cluster="slurm", rank=0, num_nodes=1):
    """Stand-ins: a job of one process a node, and what runs in it."""
    job = SimpleNamespace(cluster=cluster, global_rank=rank, job_id="7")
    job.num_tasks = job.num_nodes = num_nodes
    monkeypatch.setattr(module.submitit, "JobEnvironment", lambda: job)
    monkeypatch.setattr(module, "run_in_process", run)


def outcome(tmp_path, rank=0):
    path = tmp_path / f"7_{rank}_outcome.json"
    return json.loads(path.read_text()) if path.exists() else None


def interrupted_by(number):
    """A run that a signal stops, saved."""

    def run(options, processes, say, stop):
        signal.raise_signal(number)
        return Outcome.INTERRUPTED if stop.requested else Outcome.OK

    return run


def test_a_failed_run_leaves_its_message_and_its_exit_code(task, tmp_path, monkeypatch, capsys):
    def run(options, processes, say, stop):
        say("no such video")
        return Outcome.BAD_INPUT

    in_job(monkeypatch, run)
    with pytest.raises(SystemExit) as raised:
        task()
    assert raised.value.code == 2
    assert outcome(tmp_path) == {"outcome": 2, "message": "no such video"}
    assert "run_net.py: no such video" in capsys.readouterr().err


def test_an_error_that_nobody_expected_leaves_its_text(task, tmp_path, monkeypatch):
    def run(*_):
        raise RuntimeError("out of memory")

    in_job(monkeypatch, run)
    with pytest.raises(RuntimeError):
        task()
    assert outcome(tmp_path) == {"outcome": 1, "message": "RuntimeError: out of memory"}


@pytest.mark.parametrize("cluster", ["slurm", "local"])
def test_after_a_warning_submitit_gets_the_signal(
    cluster, task, tmp_path, monkeypatch, queued_again
):
    in_job(monkeypatch, interrupted_by(signal.SIGUSR2), cluster)
    with pytest.raises(SystemExit):
        task()
    assert queued_again == [signal.SIGUSR2]
    assert outcome(tmp_path) is None  # it has not ended


def test_other_processes_than_the_first_just_end(task, monkeypatch, queued_again):
    in_job(monkeypatch, interrupted_by(signal.SIGUSR2), rank=1)
    with pytest.raises(SystemExit) as raised:
        task()
    assert (raised.value.code, queued_again) == (0, [])


def test_sigterm_of_slurm_does_not_end_a_run(task, tmp_path, monkeypatch):
    in_job(monkeypatch, interrupted_by(signal.SIGTERM))
    assert task() is None
    assert outcome(tmp_path) == {"outcome": 0, "message": ""}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_local_run_for_good(number, task, tmp_path, monkeypatch, queued_again):
    in_job(monkeypatch, interrupted_by(number), "local")
    with pytest.raises(SystemExit) as raised:
        task()
    assert (raised.value.code, queued_again) == (4, [])
    assert outcome(tmp_path) == {"outcome": 4, "message": f"{number.name}: saved"}


@pytest.mark.parametrize("num_nodes", [1, 2])
def test_an_error_after_a_warning_is_that_of_others_leaving_or_that_of_one_process_alone(
    num_nodes, task, tmp_path, monkeypatch, queued_again
):
    def run(*_):
        signal.raise_signal(signal.SIGUSR2)
        raise RuntimeError("Connection closed by peer")

    in_job(monkeypatch, run, num_nodes=num_nodes)
    monkeypatch.setattr(module, "_processes", lambda job: Processes(0, num_nodes))
    with pytest.raises(SystemExit if num_nodes == 2 else RuntimeError):
        task()
    assert queued_again == ([signal.SIGUSR2] if num_nodes == 2 else [])
    found = outcome(tmp_path)
    assert found is None if num_nodes == 2 else found["outcome"] == Outcome.FAILED


def test_a_new_start_forgets_how_the_last_one_ended(task, tmp_path, monkeypatch, queued_again):
    (tmp_path / "7_0_outcome.json").write_text('{"outcome": 1, "message": ""}')
    in_job(monkeypatch, interrupted_by(signal.SIGUSR2))
    with pytest.raises(SystemExit):
        task()
    assert outcome(tmp_path) is None


def test_what_is_queued_again_is_the_task_itself(task):
    assert task.checkpoint().function == task
    assert DelayedSubmission(task)._checkpoint_function().function == task


@pytest.fixture
def said(tmp_path, monkeypatch):
    """What scontrol is told."""
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\n')
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path / "said"


@pytest.mark.parametrize("hangs", [True, False])
def test_a_warned_job_that_hangs_is_queued_again(hangs, said):
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    with _Deadline(0.5, "12_3") as deadline:
        time.sleep(0.7)
        assert not said.exists()
        signal.raise_signal(signal.SIGUSR2)
        if hangs:
            deadline.join(10)
    signal.signal(signal.SIGUSR2, before)
    deadline.join(10)
    assert not deadline.is_alive()
    assert said.exists() == hangs
    assert not hangs or said.read_text() == "requeue 12_3\n"


def hang_in_c(pipe):
    """Wait for a lock in a call in C, which starts again after a signal, as a collective does."""
    signal.signal(signal.SIGUSR2, lambda *_: pipe.send("the handler ran"))
    with _Deadline(0.1, "12_3") as deadline:
        lock, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
        libc.pthread_mutex_lock(lock)

        def end():
            deadline.join(10)
            os._exit(0)

        threading.Thread(target=end).start()
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR2)).start()
        libc.pthread_mutex_lock(lock)


def test_so_is_one_whose_main_thread_runs_no_handler(said):
    context = get_context("fork")  # without the seconds of an import
    reading, writing = context.Pipe(duplex=False)
    process = context.Process(target=hang_in_c, args=(writing,))
    process.start()
    process.join(60)
    assert (process.exitcode, said.read_text()) == (0, "requeue 12_3\n")
    assert not reading.poll()


def test_signals_of_a_start_up_wait_until_somebody_listens():
    """They come while Python starts, and while it imports."""
    script = """
import os, signal
from mgexp.launch.hold_signals import release
found = []
for number in (signal.SIGTERM, signal.SIGUSR2):
    os.kill(os.getpid(), number)
    signal.signal(number, lambda number, frame: found.append(number))
assert found == []
release()
assert sorted(found) == [signal.SIGUSR2, signal.SIGTERM], found
"""
    start = [sys.executable, "-I", "-S", hold_signals.__file__, "-c", script]
    subprocess.run(start, check=True, env={"PYTHONPATH": str(REPOSITORY)})
