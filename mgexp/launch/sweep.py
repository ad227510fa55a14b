"""Starts what a sweep lacks, and cancels what it has started."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import yaml
from submitit import LocalJob

from mgexp.config.check import differing_keys
from mgexp.config.load import flatten
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.launch.resources import Resources
from mgexp.launch.run import RunOptions, check_submission, freeze_code, frozen_yaml
from mgexp.launch.submit import (
    POLL_SECONDS,
    Follower,
    Submission,
    outcome_of,
    stop,
    to_slurm,
    to_this_machine,
)
from mgexp.launch.sweep_state import QUEUED, RUNNING, states, submissions
from mgexp.run.environment import REPOSITORY, git_commit
from mgexp.run.files import append_jsonl, atomic_write_text, cut_jsonl, read_json, write_json
from mgexp.run.folder import MAX_NAME, LaunchDir, SweepDir, file_name, new_launch_dir
from mgexp.train.result import Outcome

EVERYWHERE = "all"
"""The name of the only point of a sweep without a grid."""

BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}

Point = tuple[tuple[str, str], ...]
"""(key, value as text) of each key of the grid."""


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep."""

    experiment: str
    point: Point
    seed: int

    @property
    def point_name(self) -> str:
        """The name of its point's folder."""
        text = ",".join(f"{key}={value}" for key, value in self.point) or EVERYWHERE
        name = file_name(text)
        return name if name == text else _distinct(name, text)

    @property
    def name(self) -> str:
        """<point>/<experiment>/seed<N>: where its run folder is, and what it is called."""
        return f"{self.point_name}/{self.experiment}/seed{self.seed}"


def _distinct(name: str, text: str) -> str:
    """Where a text is no file name, two may become the same: its hash keeps them apart."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}-{digest}"


def read_grid(texts: Sequence[str]) -> tuple[Point, ...]:
    """Every combination of the values of KEY=V1,V2; raises InputError with every problem.

    A comma in brackets is part of a value: SOLVER.STEPS=[0,3],[0,4] has two.
    """
    problems, axes, seen = [], [], set()
    for text in texts:
        key, equals, rest = text.partition("=")
        values = [value.strip() for value in _split(rest)]
        if not equals or not key or not all(values):
            problems.append(
                f"--grid {text!r}: it takes KEY=VALUE,VALUE, such as SOLVER.BASE_LR=0.05,0.1"
            )
        elif key in seen:
            problems.append(f"--grid {text}: {key} is there twice; give its values together")
        elif len(set(values)) < len(values):
            problems.append(f"--grid {text}: a value is there twice")
        seen.add(key)
        axes.append([(key, value) for value in values])
    if problems:
        raise InputError(problems)
    return tuple(itertools.product(*axes))


def _split(text: str) -> list[str]:
    """At the commas outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += BRACKETS.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def read_seeds(text: str) -> tuple[int, ...]:
    """ "3": seeds 0, 1 and 2; "3,5": these. Raises InputError."""
    try:
        numbers = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        numbers = ()
    seeds = numbers if "," in text else tuple(range(sum(numbers)))
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        problem = (
            f"--seeds {text}: it takes a number of seeds, such as 3, or the seeds, such as 0,5"
        )
        raise InputError([problem])
    return seeds


@dataclass(frozen=True)
class Sweep:
    """``experiments`` (name, YAML) × ``points`` × ``seeds``, with the KEY VALUE pairs ``overrides`` for all."""

    folder: SweepDir
    experiments: Mapping[str, Path]
    points: tuple[Point, ...]
    seeds: tuple[int, ...]
    overrides: tuple[str, ...] = ()
    is_smoke: bool = False

    @property
    def runs(self) -> tuple[SweepRun, ...]:
        """Seed by seed, so that every row has a result early."""
        return tuple(
            SweepRun(experiment, point, seed)
            for seed in self.seeds
            for point in self.points
            for experiment in self.experiments
        )

    def options(self, run: SweepRun) -> RunOptions:
        """Of a run, from the YAML as it is now."""
        return RunOptions(
            config=self.experiments[run.experiment],
            overrides=self._pairs(run),
            seed=run.seed,
            output=self.folder.run(run.name).root,
            is_smoke=self.is_smoke,
        )

    def frozen_options(self, run: SweepRun) -> RunOptions:
        """Of a run, from the frozen YAML; no path depends on the folder that it is started from."""
        return RunOptions(
            config=self.folder.config_yaml(run.point_name, run.experiment).absolute(),
            seed=run.seed,
            output=self.folder.run(run.name).root.absolute(),
            is_smoke=self.is_smoke,
            given=self._pairs(run),
        )

    def _pairs(self, run: SweepRun) -> tuple[str, ...]:
        return (*self.overrides, *(text for pair in run.point for text in pair))

    def working_directory(self) -> Path:
        """That of the first call: relative paths of the configurations mean the same in every later one."""
        if self.folder.sweep_json.exists():
            return Path(read_json(self.folder.sweep_json)["working_directory"])
        return Path.cwd()


def check_sweep(
    sweep: Sweep, resources: Resources, is_here: bool, problems: Sequence[str] = ()
) -> None:
    """Raises InputError with all that is wrong with any run, and with ``problems``; writes nothing."""
    processes = Processes(count=resources.num_processes, local_count=resources.tasks_per_node)
    found: defaultdict[str, list[str]] = defaultdict(list)
    checked = [run for run in sweep.runs if run.seed == sweep.seeds[0]]
    for run in checked:
        name = run.name.rpartition("/")[0]
        try:
            check_submission(sweep.options(run), processes, is_here, _conflicts(sweep, run))
        except InputError as error:
            for problem in error.problems:
                found[problem].append(name)
    texts = [
        problem if len(names) == len(checked) else f"{', '.join(names)}: {problem}"
        for problem, names in found.items()
    ]
    if problems or texts:
        raise InputError([*problems, *texts])


def _conflicts(sweep: Sweep, run: SweepRun) -> list[str]:
    """Where the sweep has frozen another configuration for the same run folder."""
    path = sweep.folder.config_yaml(run.point_name, run.experiment)
    if not path.exists():
        return []
    frozen = dict(flatten(yaml.safe_load(path.read_text(encoding="utf-8"))))
    now = dict(flatten(yaml.safe_load(frozen_yaml(sweep.options(run))[0])))
    return [
        f"{key}: the sweep in {sweep.folder.root} has {old!r} for it, this call {new!r}; choose another --output"
        for key, old, new in differing_keys(frozen, now)
    ]


def freeze(sweep: Sweep) -> None:
    """Copies the code and writes the YAMLs; what is frozen already stays as it is."""
    folder = sweep.folder
    folder.root.mkdir(parents=True, exist_ok=True)
    commit = freeze_code(folder.code)
    for run in sweep.runs:
        path = folder.config_yaml(run.point_name, run.experiment)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_text(path, frozen_yaml(sweep.options(run))[0])
    record = {
        "commit": commit,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "working_directory": os.fspath(Path.cwd()),
        "runs": [],
        **(read_json(folder.sweep_json) if folder.sweep_json.exists() else {}),
    }
    record["runs"] = [*dict.fromkeys([*record["runs"], *(run.name for run in sweep.runs)])]
    write_json(folder.sweep_json, record)


def age_of_code(folder: SweepDir) -> str:
    """A sentence where the code of a sweep may not be that of the working tree; else nothing."""
    if not folder.code.exists():
        return ""
    frozen, now = git_commit(folder.code), git_commit(REPOSITORY)
    if frozen == now and not now.endswith("-dirty"):
        return ""
    return f"The code is that of the sweep's first call, commit {frozen}; another --output takes it as it is now."


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
        launch=new_launch_dir(sweep.folder.launches),
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
