"""The state of each run of a sweep, from files as runs and launchers leave them, and a queue."""

import os
import subprocess
import sys

import pytest

from mgexp.launch import sweep_state as state
from mgexp.launch.submit import KILLED, is_alive
from mgexp.launch.sweep_state import RunState, states
from mgexp.run.files import append_jsonl, json_line, write_json
from mgexp.run.folder import LaunchDir, SweepDir

NAME = "all/main/x/seed0"


@pytest.fixture
def folder(tmp_path):
    return SweepDir(tmp_path)


@pytest.fixture
def queue(monkeypatch):
    """Slurm's queue; a test fills it."""
    jobs = {}
    monkeypatch.setattr(state, "slurm_queue", lambda: jobs)
    return jobs


def submitted(folder, job_id="12_0", cancelled=False, launcher="slurm"):
    """The run was submitted; the folder of its logs."""
    line = {"run": NAME, "launcher": launcher, "job_id": job_id, "launch": "launches/a"}
    append_jsonl(folder.submissions_jsonl, {**line, "date": "", "cancelled": cancelled})
    launch = LaunchDir(folder.root / "launches/a")
    launch.root.mkdir(parents=True, exist_ok=True)
    return launch


def trained(folder, num_steps, seconds=2.0):
    """The run has made some of 100 steps."""
    run = folder.run(NAME)
    run.root.mkdir(parents=True)
    run.schedule_csv.write_text("stage,end_step\n0,40\n1,100\n")
    for step in range(num_steps):
        append_jsonl(run.metrics_jsonl, {"step": step, "step_seconds": seconds})
    append_jsonl(run.evaluations_jsonl, {"step": 10, "top1": 12.5, "top5": 50.0})
    return run


def of(folder):
    (found,) = states(folder, [NAME])
    return found


def test_a_queued_run_says_why_it_waits(folder, queue):
    assert of(folder) == RunState(NAME, "missing")  # nobody submitted it yet
    submitted(folder)
    queue["12_0"] = ("PENDING", "PartitionTimeLimit")
    assert (of(folder).state, of(folder).note) == ("queued", "PartitionTimeLimit")


def test_a_running_run_says_how_far_it_is(folder, queue):
    submitted(folder)
    trained(folder, 30)
    queue["12_0"] = ("RUNNING", "None")
    found = of(folder)
    assert (found.state, found.step, found.total) == ("running", 30, 100)
    assert found.eta_seconds == 140  # 70 steps of 2 s
    assert (found.metric, found.score) == ("top1", 12.5)
    # Of long files the end is read.
    lines = [json_line({"step": step, "step_seconds": 3.0}) for step in range(30, 5000)]
    with folder.run(NAME).metrics_jsonl.open("a") as file:
        file.write("".join(lines))
    assert (of(folder).step, of(folder).eta_seconds) == (5000, (100 - 5000) * 3.0)


@pytest.mark.parametrize(("verdict", "wanted"), [("met", "finished"), ("missed", "missed")])
def test_a_finished_run_says_its_result_and_needs_no_slurm(verdict, wanted, folder, monkeypatch):
    monkeypatch.setattr(state, "slurm_queue", lambda: pytest.fail("asked"))
    submitted(folder)
    run = folder.run(NAME)
    run.root.mkdir(parents=True)
    write_json(run.result_json, {"verdict": verdict, "steps": 9, "metrics": {"map": 3.0}})
    found = of(folder)
    assert (found.state, found.step, found.total) == (wanted, 9, 9)
    assert (found.metric, found.score) == ("map", 3.0)


@pytest.mark.parametrize(
    ("outcome", "message", "wanted"),
    [
        (0, "", ("missing", "")),  # it ended well, and its folder was deleted
        (2, "1 problem found:\n  - no such video\n", ("failed", "no such video")),
    ],
)
def test_a_run_that_ended_without_a_result(outcome, message, wanted, folder, queue):
    launch = submitted(folder)
    write_json(launch.outcome_json("12_0", 0), {"outcome": outcome, "message": message})
    assert (of(folder).state, of(folder).error) == wanted


def test_the_process_that_failed_first_has_the_word(folder, queue):
    launch = submitted(folder)
    for rank, message in ((1, "the loss is nan"), (0, "Connection closed by peer")):
        path = launch.outcome_json("12_0", rank)
        write_json(path, {"outcome": 1, "message": message})
        os.utime(path, (100 - rank, 100 - rank))
    assert of(folder).error == "the loss is nan"


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("step 3\nRuntimeError: out of memory\n", "RuntimeError: out of memory"),
        ("step 3\nslurmstepd: Detected 1 oom-kill\n\n", "slurmstepd: Detected 1 oom-kill"),
        ("", KILLED),
    ],
)
def test_of_a_killed_run_the_log_is_asked(log, error, folder, queue):
    launch = submitted(folder)
    launch.error_log("12_0").write_text(log)
    assert (of(folder).state, of(folder).error) == ("failed", error)


def test_a_run_that_was_cancelled_or_stopped_did_not_fail(folder, queue):
    launch = submitted(folder)
    write_json(launch.outcome_json("12_0", 0), {"outcome": 4, "message": "SIGTERM: saved"})
    assert (of(folder).state, of(folder).note) == ("stopped", "SIGTERM: saved")
    submitted(folder, job_id="13", cancelled=True)
    assert (of(folder).state, of(folder).note) == ("stopped", "cancelled")


def test_a_local_run_is_alive_while_its_own_process_is(folder, queue):
    """This process has another command line: the number alone does not make it the run's."""
    submitted(folder, job_id=str(os.getpid()), launcher="local")
    assert of(folder).state == "failed"


def test_a_local_run_is_found_under_every_spelling_of_its_path(tmp_path):
    """A process whose command line has the folder as submitit writes it."""
    (tmp_path / "launch").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    log_folder = str((tmp_path / "launch").resolve())
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", log_folder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        one.stdout.readline()  # Linux shows the command line of a process only a moment after it has begun.
        for place in ("launch", "link/launch", "launch/../launch"):
            assert is_alive(str(one.pid), LaunchDir(tmp_path / place))
        assert not is_alive(str(one.pid), LaunchDir(tmp_path / "other"))
        one.kill()


def test_where_squeue_fails_nobody_guesses(tmp_path, monkeypatch):
    from mgexp.errors import InputError

    (tmp_path / "squeue").write_text("#!/bin/sh\necho 'no controller' >&2; exit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(InputError, match="no controller"):
        state.slurm_queue()
