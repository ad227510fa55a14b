"""Starts what a sweep lacks, and cancels what it has started."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone

from submitit import LocalJob

from mgexp.errors import InputError
from mgexp.launch.executors import Submission, to_slurm, to_this_machine
from mgexp.launch.local import POLL_SECONDS, Follower, outcome_of, stop
from mgexp.launch.resources import Resources
from mgexp.launch.sweep.grid import SweepRun
from mgexp.launch.sweep.plan import Sweep
from mgexp.launch.sweep.state import QUEUED, RUNNING, states, submissions
from mgexp.record.files import append_jsonl, cut_jsonl
from mgexp.record.sweep_dir import LaunchDir, SweepDir
from mgexp.train.result import Outcome


def submit_array(
    sweep: Sweep, runs: Sequence[SweepRun], resources: Resources, num_parallel: int
) -> list[str]:
    """Submits ``runs`` to Slurm as one array, at most ``num_parallel`` of them at a time; their job ids."""
    submission = _submission(sweep, resources, num_parallel)
    jobs = to_slurm(submission, [sweep.frozen_options(run) for run in runs])
    for run, job in zip(runs, jobs, strict=True):
        _note(sweep.folder, run.name, "slurm", job.job_id, submission.launch)
    return [job.job_id for job in jobs]


def run_on_this_machine(
    sweep: Sweep,
    runs: Sequence[SweepRun],
    resources: Resources,
    num_parallel: int,
    shows_log: bool,
    say: Callable[[str], None],
) -> Outcome:
    """Runs all, ``num_parallel`` at a time, and waits; what went wrong worst, as the exit code of the sweep.

    Ctrl-C, or a cancel from elsewhere, starts no more and waits until those that run have saved.
    """
    waiting, slots = list(runs), list(range(num_parallel))
    outcomes: list[Outcome] = []
    running: dict[int, _Running] = {}
    while running or (waiting and not sweep.folder.cancelled.exists()):
        try:
            while waiting and slots and not sweep.folder.cancelled.exists():
                slot = slots.pop(0)
                running[slot] = _start(sweep, waiting.pop(0), resources, slot, shows_log)
                say(f"{running[slot].name}: started, process {running[slot].job.job_id}")
            time.sleep(POLL_SECONDS)
            for slot in [slot for slot, one in running.items() if one.has_ended()]:
                one = running.pop(slot)
                outcome, message = outcome_of(one.launch, one.job.job_id)
                outcomes.append(outcome)
                say(f"{one.name}: {outcome.name.lower()}{': ' if message else ''}{message}")
                slots.append(slot)
        except KeyboardInterrupt:
            sweep.folder.cancelled.touch()
            for one in running.values():
                stop(one.job.job_id, one.launch)
    if waiting:
        outcomes.append(Outcome.INTERRUPTED)
    return worst(outcomes)


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """Failures before bad input, before a stop, before a missed expectation."""
    order = (Outcome.FAILED, Outcome.BAD_INPUT, Outcome.INTERRUPTED, Outcome.MISSED)
    return next((outcome for outcome in order if outcome in outcomes), Outcome.OK)


def cancel(folder: SweepDir) -> list[str]:
    """Stops every run that is queued or running, which save first; their names."""
    folder.cancelled.touch()
    known = submissions(folder)
    active = [one for one in states(folder, known) if one.state in (QUEUED, RUNNING)]
    found = [one.name for one in active]
    in_slurm = [one for one in active if known[one.name]["launcher"] == "slurm"]
    if running := [one.job_id for one in in_slurm if one.state == RUNNING]:
        # A run takes SIGTERM for a warning, and goes on until it is killed: Ctrl-C stops it sooner.
        subprocess.run(["scancel", "--signal=INT", *running], check=False, capture_output=True)
    if in_slurm:
        _scancel([one.job_id for one in in_slurm])
    for name in found:
        line = known[name]
        if line["launcher"] != "slurm":
            stop(line["job_id"], LaunchDir(folder.root / line["launch"]))
        append_jsonl(folder.submissions_jsonl, {**line, "cancelled": True})
    return found


def _scancel(job_ids: Sequence[str]) -> None:
    try:
        subprocess.run(["scancel", *job_ids], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError([f"scancel failed: {getattr(error, 'stderr', '') or error}"]) from error


class _Running:
    """A run of this machine, and its log."""

    def __init__(self, name: str, job: LocalJob[None], launch: LaunchDir, shows_log: bool) -> None:
        self.name, self.job, self.launch = name, job, launch
        self._follower = Follower(launch, job.job_id) if shows_log else None

    def has_ended(self) -> bool:
        """Also shows what is new in the log."""
        ended = bool(self.job.done())
        if self._follower:
            self._follower.show()
        return ended


def _start(
    sweep: Sweep, run: SweepRun, resources: Resources, slot: int, shows_log: bool
) -> _Running:
    submission = _submission(sweep, resources, num_parallel=1)
    job = to_this_machine(submission, sweep.frozen_options(run), slot)
    _note(sweep.folder, run.name, "local", job.job_id, submission.launch)
    return _Running(run.name, job, submission.launch, shows_log)


def _submission(sweep: Sweep, resources: Resources, num_parallel: int) -> Submission:
    return Submission(
        launch=sweep.folder.launches.new(),
        code=sweep.folder.code.absolute(),
        working_directory=sweep.working_directory(),
        resources=resources,
        name=sweep.folder.root.name,
        num_parallel=num_parallel,
    )


def _note(folder: SweepDir, name: str, launcher: str, job_id: str, launch: LaunchDir) -> None:
    cut_jsonl(folder.submissions_jsonl, lambda _: True)  # what a kill left torn
    append_jsonl(
        folder.submissions_jsonl,
        {
            "run": name,
            "launcher": launcher,
            "job_id": job_id,
            "launch": str(launch.root.relative_to(folder.root)),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "cancelled": False,
        },
    )
