"""Run a sweep, rows × points of a grid × seeds: check all runs, freeze code and YAMLs, start the missing runs."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from mgexp.config.check import differing_keys
from mgexp.config.load import file_values, flatten, fold_of, to_yaml
from mgexp.errors import InputError, raise_problems
from mgexp.launch.resources import Resources
from mgexp.launch.run import RunOptions, check_submission, freeze_code
from mgexp.launch.submit import POLL_SECONDS, LocalRun, ignoring, stop, to_slurm, to_this_machine
from mgexp.launch.sweep_state import QUEUED, RUNNING, RunState, states, submissions
from mgexp.launch.task import Submission
from mgexp.run.environment import REPOSITORY, git_commit, num_cores
from mgexp.run.files import append_jsonl, atomic_write_text, cut_jsonl, read_json, write_json
from mgexp.run.folder import MAX_NAME, LaunchDir, SweepDir, file_name, new_launch_dir
from mgexp.train.result import Outcome

EVERYWHERE = "all"
"""The name of the only point of a sweep without a grid."""
REMEDY = "choose another --output; in a study, wait until no run is queued or running"

Point = tuple[tuple[str, str], ...]
"""One choice of values: a (key, value as text) pair for each key of the grid."""


@dataclass(frozen=True)
class SweepRun:
    experiment: str
    point: Point
    seed: int

    @property
    def point_name(self) -> str:
        text = ",".join(f"{key}={value}" for key, value in self.point) or EVERYWHERE
        name = file_name(text)
        if name == text:
            return name
        # Two texts with forbidden characters may become the same file name. A hash of the text makes them differ.
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{name[: MAX_NAME - 9]}-{digest}"

    @property
    def name(self) -> str:
        """Return the path of the run's folder: <point>/<experiment>/seed<N>."""
        return f"{self.point_name}/{self.experiment}/seed{self.seed}"


@dataclass(frozen=True)
class Sweep:
    """All runs of ``experiments`` (YAMLs by name) × ``points`` × ``seeds``, each with ``overrides``."""

    folder: SweepDir
    experiments: Mapping[str, Path]
    points: tuple[Point, ...]
    seeds: tuple[int, ...]
    overrides: tuple[str, ...] = ()
    is_smoke: bool = False

    @property
    def runs(self) -> tuple[SweepRun, ...]:
        # Seed by seed, so that every row gets its first result early.
        return tuple(
            SweepRun(experiment, point, seed)
            for seed in self.seeds
            for point in self.points
            for experiment in self.experiments
        )

    def options(self, run: SweepRun) -> RunOptions:
        return RunOptions(
            config=self.experiments[run.experiment],
            overrides=(*self.overrides, *(text for pair in run.point for text in pair)),
            seed=run.seed,
            output=self.folder.run(run.name).root,
            is_smoke=self.is_smoke,
            experiment=run.experiment,
        )

    def frozen_options(self, run: SweepRun) -> RunOptions:
        """Return the options with the frozen YAML of the run, and with absolute paths."""
        config = self.folder.config_yaml(run.point_name, run.experiment)
        output = self.folder.run(run.name).root.absolute()
        return replace(self.options(run).frozen_as(config), output=output)

    def submission(self, resources: Resources, num_parallel: int = 1) -> Submission:
        """Prepare a submission of some runs of the frozen sweep."""
        return Submission(
            launch=new_launch_dir(self.folder.launches),
            code=self.folder.code.absolute(),
            # That of the first call, so that relative paths in the configurations always mean the same.
            working_directory=Path(read_json(self.folder.sweep_json)["working_directory"]),
            resources=resources,
            name=self.folder.root.name,
            num_parallel=num_parallel,
        )


def check_sweep(
    sweep: Sweep, resources: Resources, is_here: bool, problems: Sequence[str] = ()
) -> None:
    """Check every run and write nothing. Raises InputError with all problems, ``problems`` included."""
    names_of: defaultdict[str, list[str]] = defaultdict(list)
    # Seeds share a configuration, so one run of each row, point and fold stands for all of its seeds.
    checked: dict[tuple[str, Point, int], SweepRun] = {}
    for run in sweep.runs:
        fold = fold_of(run.seed, sweep.options(run).read().DATA.NUM_FOLDS)
        checked.setdefault((run.experiment, run.point, fold), run)
    for run in checked.values():
        name = run.name.rpartition("/")[0]
        try:
            check_submission(sweep.options(run), resources, is_here, _conflicts(sweep, run))
        except InputError as error:
            for problem in error.problems:
                names_of[problem].append(name)
    texts = list(problems)
    for problem, names in names_of.items():
        who = "" if len(names) == len(checked) else f"{', '.join(dict.fromkeys(names))}: "
        texts.append(f"{who}{problem}")
    raise_problems(texts)


def _conflicts(sweep: Sweep, run: SweepRun) -> list[str]:
    """List each key whose value now differs from the YAML that was frozen for the same run folder."""
    path = sweep.folder.config_yaml(run.point_name, run.experiment)
    if not path.exists():
        return []
    frozen = file_values(path)
    now = dict(flatten(sweep.options(run).read()))
    # The frozen YAML would also keep its value of a key that changes no result.
    return [
        f"{key}: {sweep.folder.root} has {old!r}, this call {new!r}; {REMEDY}"
        for key, old, new in differing_keys(frozen, now, ignored=frozenset())
    ]


def _active(folder: SweepDir) -> list[RunState]:
    return [run for run in states(folder, submissions(folder)) if run.state in (QUEUED, RUNNING)]


def thaw(folder: SweepDir) -> None:
    """Remove the frozen code and YAMLs, so that `freeze` takes those of now, unless a run needs them."""
    if not _active(folder):
        for path in (folder.code, folder.configs):
            shutil.rmtree(path, ignore_errors=True)


def freeze(sweep: Sweep, runs: Sequence[SweepRun]) -> None:
    """Copy the code and write the YAMLs of ``runs``. A copy or a YAML that exists already stays as it is."""
    folder = sweep.folder
    folder.root.mkdir(parents=True, exist_ok=True)
    freeze_code(folder.code)
    for run in runs:
        path = folder.config_yaml(run.point_name, run.experiment)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_text(path, to_yaml(sweep.options(run).read()))
    record = {"working_directory": str(Path.cwd()), "runs": []}
    if folder.sweep_json.exists():
        record = read_json(folder.sweep_json)
    record["runs"] = [*dict.fromkeys([*record["runs"], *(run.name for run in runs)])]
    write_json(folder.sweep_json, record)


def age_of_code(folder: SweepDir) -> str:
    """Say whether the code of the sweep may differ from the working tree."""
    if not folder.code.exists():
        return ""
    frozen, now = git_commit(folder.code), git_commit(REPOSITORY)
    # Two trees with the same commit and uncommitted changes may differ.
    if frozen == now and not now.endswith("-dirty"):
        return ""
    return f"This sweep uses the code of commit {frozen}. For the present code, {REMEDY}."


def submit_array(
    sweep: Sweep, runs: Sequence[SweepRun], resources: Resources, num_parallel: int
) -> list[str]:
    """Submit ``runs`` to Slurm as one array, at most ``num_parallel`` at a time. Return their job ids."""
    # Only before the first line of a call: `cancel` appends lines while the runs of the call start.
    cut_jsonl(sweep.folder.submissions_jsonl)
    submission = sweep.submission(resources, num_parallel)
    # Jobs that are not noted could neither be cancelled nor be told from missing ones.
    with ignoring(signal.SIGINT):
        jobs = to_slurm(submission, [sweep.frozen_options(run) for run in runs])
        ids = {run.name: job.job_id for run, job in zip(runs, jobs, strict=True)}
        _note(sweep.folder, ids, "slurm", submission.launch)
    return [*ids.values()]


def run_on_this_machine(
    sweep: Sweep,
    runs: Sequence[SweepRun],
    resources: Resources,
    num_parallel: int,
    shows_log: bool,
    say: Callable[[str], None],
) -> Outcome:
    """Run all, ``num_parallel`` at a time, until they end or are cancelled. Return the worst outcome."""
    cut_jsonl(sweep.folder.submissions_jsonl)
    # Threads of two runs on the same cores wait for each other, and both runs take more than twice the time. So
    # each run inherits its share of threads.
    if num_parallel > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, num_cores() // num_parallel)))
    outcomes: list[Outcome] = []
    # A slot stands for the GPUs of one run. ``running`` has the name and the processes of the run in each slot.
    waiting, slots = list(runs), list(range(num_parallel))
    running: dict[int, tuple[str, LocalRun]] = {}
    while running or (waiting and not sweep.folder.cancelled.exists()):
        try:
            while waiting and slots and not sweep.folder.cancelled.exists():
                slot, run, submission = slots[0], waiting[0], sweep.submission(resources)
                local = to_this_machine(submission, sweep.frozen_options(run), slot)
                # From here on, Ctrl-C stops this run too.
                running[slots.pop(0)] = run.name, local
                waiting.pop(0)
                _note(sweep.folder, {run.name: local.job.job_id}, "local", submission.launch)
                # A `sweep.py cancel` that came before this line does not know the run.
                if sweep.folder.cancelled.exists():
                    stop(local.job.job_id, local.launch)
                say(f"{run.name}: started, process {local.job.job_id}")
            time.sleep(POLL_SECONDS)
            ended = [slot for slot, (_, local) in running.items() if local.has_ended(shows_log)]
            for slot in ended:
                name, local = running.pop(slot)
                outcome, message = local.outcome(was_stopped=sweep.folder.cancelled.exists())
                outcomes.append(outcome)
                say(f"{name}: {outcome.name.lower()}{': ' if message else ''}{message}")
                slots.append(slot)
        except KeyboardInterrupt:
            sweep.folder.cancelled.touch()
            for _, local in running.values():
                stop(local.job.job_id, local.launch)
    if waiting:
        outcomes.append(Outcome.INTERRUPTED)
    # From the worst to the mildest: a failure, bad input, a stop, a missed expectation.
    order = (Outcome.FAILED, Outcome.BAD_INPUT, Outcome.INTERRUPTED, Outcome.MISSED)
    return next((outcome for outcome in order if outcome in outcomes), Outcome.OK)


def cancel(folder: SweepDir) -> list[str]:
    """Stop every run that is queued or running. A running run saves first. Return the names of all."""
    folder.cancelled.touch()
    active = _active(folder)
    known = submissions(folder)
    in_slurm = [run for run in active if known[run.name]["launcher"] == "slurm"]
    try:
        if running := [run.job_id for run in in_slurm if run.state == RUNNING]:
            # On Slurm, a run saves after SIGTERM but continues until it is killed. SIGINT makes it save and end.
            # If this fails, the next command still cancels the jobs.
            subprocess.run(["scancel", "--signal=INT", *running], check=False, capture_output=True)
        if in_slurm:
            command = ["scancel", *(run.job_id for run in in_slurm)]
            subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError([f"scancel failed: {getattr(error, 'stderr', '') or error}"]) from error
    for run in active:
        line = known[run.name]
        if line["launcher"] != "slurm":
            stop(line["job_id"], LaunchDir(folder.root / line["launch"]))
        append_jsonl(folder.submissions_jsonl, {**line, "cancelled": True})
    return [run.name for run in active]


def _note(folder: SweepDir, jobs: Mapping[str, str], launcher: str, launch: LaunchDir) -> None:
    """Record that runs were submitted. ``jobs`` has their job ids by name."""
    for name, job_id in jobs.items():
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
