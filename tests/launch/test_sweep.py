"""The runs of a sweep that are stopped, or submitted, at awkward moments."""

import os
import signal
from types import SimpleNamespace

import pytest
from tiny import write_config

from mgexp.launch import sweep as module
from mgexp.launch.resources import Resources
from mgexp.launch.submit import KILLED, LocalRun
from mgexp.launch.sweep import Sweep, run_on_this_machine, submit_array
from mgexp.run.files import read_jsonl, write_json
from mgexp.run.folder import LaunchDir, SweepDir
from mgexp.train.result import Outcome


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """A sweep of one run that begins nothing."""
    row = write_config(tmp_path / "row.yaml", {})
    folder = SweepDir(tmp_path / "sweep")
    folder.root.mkdir()
    write_json(folder.sweep_json, {"working_directory": str(tmp_path), "runs": []})
    monkeypatch.setattr(Sweep, "frozen_options", lambda self, run: self.options(run))
    monkeypatch.setattr(module, "POLL_SECONDS", 0.0)
    return Sweep(folder, {"row": row}, ((),), (0,))


def run(sweep):
    said = []
    outcome = run_on_this_machine(sweep, sweep.runs, Resources(), 1, False, said.append)
    return outcome, said[-1]


def ended_at_once(monkeypatch, started=lambda: None):
    """Processes that a signal ends before they write anything. Return what is stopped."""

    def begin(submission, *_):
        started()
        return LocalRun(SimpleNamespace(job_id="7", done=lambda: True), submission.launch)

    stopped = []
    monkeypatch.setattr(module, "to_this_machine", begin)
    monkeypatch.setattr(module, "stop", lambda job_id, launch: stopped.append((job_id, launch)))
    return stopped


def test_a_run_that_is_cancelled_while_it_starts_is_stopped_and_did_not_fail(sweep, monkeypatch):
    stopped = ended_at_once(monkeypatch, sweep.folder.cancelled.touch)
    outcome, said = run(sweep)
    assert outcome is Outcome.INTERRUPTED
    assert "all/row/seed0" in said
    ((number, launch),) = stopped
    assert number == "7" and isinstance(launch, LaunchDir)


def test_a_run_that_is_killed_without_a_cancel_failed(sweep, monkeypatch):
    assert ended_at_once(monkeypatch) == []
    outcome, said = run(sweep)
    assert outcome is Outcome.FAILED
    assert KILLED in said


def test_ctrl_c_waits_until_the_jobs_of_slurm_are_noted(sweep, monkeypatch):
    def to_slurm(*_):
        os.kill(os.getpid(), signal.SIGINT)
        return [SimpleNamespace(job_id="42_0")]

    monkeypatch.setattr(module, "to_slurm", to_slurm)
    before = signal.getsignal(signal.SIGINT)
    assert submit_array(sweep, sweep.runs, Resources(), 1) == ["42_0"]
    assert signal.getsignal(signal.SIGINT) is before
    (line,) = read_jsonl(sweep.folder.submissions_jsonl)
    assert (line["run"], line["job_id"]) == ("all/row/seed0", "42_0")


def test_a_torn_line_of_submissions_is_removed_before_the_first_new_one(sweep, monkeypatch):
    sweep.folder.submissions_jsonl.write_text('{"run": "a", "cancelled": false}\n{"run": "b", ')
    monkeypatch.setattr(module, "to_slurm", lambda *_: [SimpleNamespace(job_id="42_0")])
    submit_array(sweep, sweep.runs, Resources(), 1)
    found = [one["run"] for one in read_jsonl(sweep.folder.submissions_jsonl)]
    assert found == ["a", "all/row/seed0"]
