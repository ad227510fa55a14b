"""Find out how far each run of a sweep is, from its run folder, its last submission and Slurm's queue."""

from __future__ import annotations

import csv
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from tqdm import tqdm

from mgexp.errors import InputError
from mgexp.launch.submit import KILLED, is_alive, outcome_of
from mgexp.run.files import read_json, read_jsonl, understanding
from mgexp.run.folder import LaunchDir, RunDir, SweepDir
from mgexp.train.result import MISSED, Outcome

MISSING, QUEUED, RUNNING, STOPPED, FAILED = "missing", "queued", "running", "stopped", "failed"
FINISHED, MISSED_IT = "finished", "missed"
IN_HAND = (QUEUED, RUNNING, FINISHED, MISSED_IT)
"""The states of runs that a second call of sweep.py does not submit again."""


@dataclass(frozen=True)
class RunState:
    """The state of one run."""

    name: str
    state: str
    step: int = 0
    total: int = 0  # 0 until the schedule is written
    eta_seconds: float | None = None
    metric: str = ""
    score: float | None = None  # the last evaluation in percent
    error: str = ""  # the last line of the error
    note: str = ""  # why it waits or stopped
    job_id: str = ""
    log: str = ""

    def cells(self) -> tuple[str, ...]:
        progress = f"{self.step}/{self.total}" if self.total else ""
        eta = "" if self.eta_seconds is None else tqdm.format_interval(self.eta_seconds)
        score = "" if self.score is None else f"{self.metric} {self.score:.2f} %"
        return (self.name, self.state, self.job_id, progress, eta, score, self.error or self.note)


COLUMNS = ("run", "state", "job", "step", "ETA", "so far", "why")


def slurm_queue() -> dict[str, tuple[str, str]]:
    """Return (state, reason) of every job of this user by job id, such as 12 or 12_3. Raises InputError."""
    # Without --array, squeue shows all waiting jobs of an array in one line.
    command = ["squeue", "--noheader", "--array", "--format=%i|%T|%r", "--user", str(os.getuid())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = " ".join((getattr(error, "stderr", "") or str(error)).split())
        raise InputError([f"squeue failed, so the queue is unknown: {reason}"]) from error
    rows = (line.split("|", 2) for line in done.stdout.splitlines())
    return {row[0]: (row[1], row[2]) for row in rows}


def submissions(folder: SweepDir) -> dict[str, dict[str, Any]]:
    """Return the last submission of each run by its name."""
    return {line["run"]: line for line in read_jsonl(folder.submissions_jsonl)}


def states(folder: SweepDir, names: Iterable[str]) -> tuple[RunState, ...]:
    """Return the states of the named runs. Ask Slurm only if it got a run that is not finished."""
    known = submissions(folder)
    # A copy of a finished sweep may lie on a machine without Slurm.
    asks_slurm = any(
        line["launcher"] == "slurm" and not folder.run(name).result_json.exists()
        for name, line in known.items()
    )
    queue = slurm_queue() if asks_slurm else {}
    run_states = []
    for name in names:
        with understanding(folder.run(name).root):
            run_states.append(_state(folder, name, known.get(name), queue))
    return tuple(run_states)


def all_names(folder: SweepDir) -> list[str]:
    """Return the names of all runs of all calls of the sweep, in order. Raises InputError if there is no sweep."""
    if not folder.sweep_json.exists():
        raise InputError([f"{folder.root} has no sweep.json"])
    return list(read_json(folder.sweep_json)["runs"])


def _state(
    folder: SweepDir,
    name: str,
    submission: Mapping[str, Any] | None,
    queue: Mapping[str, tuple[str, str]],
) -> RunState:
    run = folder.run(name)
    if run.result_json.exists():
        result = read_json(run.result_json)
        state = MISSED_IT if result["verdict"] == MISSED else FINISHED
        metric, score = next(iter(result["metrics"].items()))
        return RunState(name, state, result["steps"], result["steps"], metric=metric, score=score)
    if submission is None:
        return RunState(name, MISSING)
    launch, job_id = LaunchDir(folder.root / submission["launch"]), submission["job_id"]
    known = {**progress_of(run), "job_id": job_id, "log": str(launch.error_log(job_id))}
    if submission["launcher"] == "slurm":
        in_queue = queue.get(job_id)
    else:
        in_queue = ("RUNNING", "") if is_alive(job_id, launch) else None
    if in_queue:
        # Slurm gives a reason for running jobs too, which is "None".
        is_waiting = in_queue[0] == "PENDING"
        note = in_queue[1] if is_waiting else ""
        return RunState(name, QUEUED if is_waiting else RUNNING, note=note, **known)
    known["eta_seconds"] = None
    outcome, message = outcome_of(launch, job_id)
    if submission["cancelled"] or outcome is Outcome.INTERRUPTED:
        note = "cancelled" if submission["cancelled"] else message
        return RunState(name, STOPPED, note=note, **known)
    # The run ended well. So somebody has deleted its folder since, perhaps to train it again.
    if outcome in {Outcome.OK, Outcome.MISSED}:
        return RunState(name, MISSING)
    log = launch.error_log(job_id)
    text = message
    # A killed process writes no outcome, but its log may end with the reason, from Slurm or from the run itself.
    if message == KILLED and log.exists():
        text = log.read_text(encoding="utf-8", errors="replace")
    # The last line is the problem itself: an InputError lists its problems, and a traceback ends with the error.
    lines = [line.strip(" -") for line in text.splitlines() if line.strip()]
    return RunState(name, FAILED, error=lines[-1] if lines else message, **known)


def progress_of(run: RunDir) -> dict[str, Any]:
    """Read the step, the total, the remaining seconds and the score so far from the run folder."""
    step, total, eta, metric, score = 0, 0, None, "", None
    if run.schedule_csv.exists():
        with run.schedule_csv.open(encoding="utf-8", newline="") as file:
            total = max(int(row["end_step"]) for row in csv.DictReader(file))
    if records := read_jsonl(run.metrics_jsonl):
        step = records[-1]["step"] + 1
        # The median leaves out the few steps that wait for a compilation or a new shape.
        recent = median(record["step_seconds"] for record in records[-50:])
        eta = (total - step) * recent
    if evaluations := read_jsonl(run.evaluations_jsonl):
        metric = "top1" if "top1" in evaluations[-1] else "map"
        score = evaluations[-1].get(metric)
    return {"step": step, "total": total, "eta_seconds": eta, "metric": metric, "score": score}
