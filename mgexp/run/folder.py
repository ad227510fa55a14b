"""Names and places of the files in every folder that mgexp writes: runs, rows, sweeps, submissions, checks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryFile

from mgexp.errors import InputError
from mgexp.run.files import lock_file

RUNS = "runs"
SMOKE = "smoke"
MAX_NAME = 100
"""Characters of a folder's name; file systems allow 255 bytes."""

METRIC_NAMES = {"top1": "top-1", "top5": "top-5", "map": "mAP"}
"""Metrics of evaluations.jsonl and result.json, and how people write them."""


@dataclass(frozen=True)
class Folder:
    """A folder of mgexp. The classes below name the files in it."""

    root: Path


@dataclass(frozen=True)
class Inside:
    """A path in a folder: with ``config_yaml = Inside("config.yaml")`` a ``run.config_yaml`` is below run.root."""

    name: str

    def __get__(self, folder: Folder, owner: type | None = None) -> Path:
        return folder.root / self.name


class RunDir(Folder):
    """The folder of one run, by default runs/<experiment>/seed<N>."""

    config_yaml = Inside("config.yaml")
    """The whole configuration of the run."""
    environment_json = Inside("environment.json")
    """Versions and machine, as `mgexp.run.environment.describe` gives them."""
    starts_jsonl = Inside("starts.jsonl")
    """A line per start: its environment, the step after which it went on, what --override let change, and the keys
    that were given beside the YAML. Starts that did not reach a checkpoint are left out."""
    schedule_csv = Inside("schedule.csv")
    """The table of phases."""
    metrics_jsonl = Inside("metrics.jsonl")
    """A line per logged step."""
    evaluations_jsonl = Inside("evaluations.jsonl")
    """A line per evaluation."""
    dataset_json = Inside("dataset.json")
    """What identifies the videos; the number of those for training is N of the schedule."""
    timeouts_jsonl = Inside("timeouts.jsonl")
    """A line per video that hung, with its position in the stream: a resumed run leaves it out there again."""
    init_weights_json = Inside("init_weights.json")
    """What became of each tensor of TRAIN.INIT_WEIGHTS and of the model."""
    log_txt = Inside("log.txt")
    """What the run printed."""
    checkpoints = Inside("checkpoints")
    """The folder of the checkpoints."""
    model = Inside("model.pt")
    """The weights that the final evaluation scored."""
    confusion_csv = Inside("confusion.csv")
    """How often the final evaluation took the videos of each class for each class."""
    result_json = Inside("result.json")
    """Written last: a run is finished when this file exists."""
    tensorboard = Inside("tensorboard")
    """Events for TensorBoard, unless TENSORBOARD.LOG_DIR names another folder."""
    wandb_json = Inside("wandb.json")
    """The id of this run at W&B, and what W&B was told before the last start."""
    lock = Inside("lock")
    """Held by the process that writes into this folder."""
    evaluation_parts = Inside("evaluation_parts")
    """The folder with the finished parts of an unfinished evaluation; gone when the run is finished."""
    launches = Inside("launches")
    """Submissions of a run that was submitted on its own, each a LaunchDir."""

    def tensorboard_in(self, log_dir: Path) -> Path:
        """Return this run's folder in ``log_dir``: its path below runs/, or its whole path without links."""
        whole = self.root.resolve()
        named_runs = (folder for folder in whole.parents if folder.name == RUNS)
        above = next(named_runs, Path(whole.anchor))
        return log_dir / whole.relative_to(above)

    def scores(self, protocol: str) -> Path:
        """Return the file of every validation video's scores under a full protocol, such as 10x3_forward."""
        return self.root / f"scores_{protocol}.npz"

    def evaluation_part(self, step: int, name: str) -> Path:
        """Return one process's part of the evaluation after `step` steps; `name`: protocol and process."""
        return self.evaluation_parts / f"step_{step:08d}_{name}.pt"

    def drop_evaluation_parts(self, after_step: int = -1) -> None:
        """Delete the parts of evaluations after more than `after_step` steps; by default all."""
        for path in self.evaluation_parts.glob("step_*.pt"):
            if int(path.name.split("_")[1]) > after_step:
                path.unlink(missing_ok=True)
        if self.evaluation_parts.is_dir() and not any(self.evaluation_parts.iterdir()):
            self.evaluation_parts.rmdir()

    def checkpoint(self, step: int) -> Path:
        """Return the checkpoint taken before `step`, that is, after `step` steps."""
        return self.checkpoints / f"step_{step:08d}.pt"

    def damaged_checkpoint(self, step: int) -> Path:
        """Return where a damaged checkpoint is kept for people to look at."""
        return self.checkpoint(step).with_suffix(".pt.damaged")

    def checkpoint_steps(self) -> tuple[int, ...]:
        """List the steps of the checkpoints that exist, ascending; a run resumes at the last one."""
        names = (re.fullmatch(r"step_(\d+)", path.stem) for path in self.checkpoints.glob("*.pt"))
        return tuple(sorted(int(name[1]) for name in names if name))

    def locked(self) -> AbstractContextManager[None]:
        """Make the folder, hold its lock, and delete what a killed writer left half-written.

        Raises InputError where the folder cannot be written, or where another process holds the lock.
        """
        return _locked(self.root, self.checkpoints, self.evaluation_parts)


def default_run_dir(experiment: str, seed: int, is_smoke: bool) -> RunDir:
    """Return runs/<experiment>/seed<N>. A smoke run has the same place in runs/smoke."""
    return RunDir(Path(RUNS, SMOKE if is_smoke else "", experiment, f"seed{seed}"))


def find_runs(root: Path) -> tuple[RunDir, ...]:
    """Find every run folder at or below `root`: a folder that holds config.yaml. Sorted by path.

    Smoke runs are left out, unless `root` is their folder or one below it.
    """
    configs = sorted(root.rglob(RunDir(root).config_yaml.name))
    runs = (config.parent for config in configs)
    return tuple(RunDir(run) for run in runs if SMOKE not in run.relative_to(root).parts)


class RunsDir(Folder):
    """A folder of rows: <root>/<row>/seed<N> are run folders, the report on them lies in root."""

    report_md = Inside("report.md")
    """The table."""
    report_html = Inside("report.html")
    """The same as one page with its figures in it."""
    figures = Inside("figures")
    """The folder of the figures."""
    stored_jsonl = Inside("runs.jsonl")
    """Finished runs, kept beside the YAMLs of their rows."""

    def figure(self, name: str, kind: str) -> Path:
        """Return a figure of the report; kind: svg, pdf or png."""
        return self.figures / f"{name}.{kind}"

    def runs(self) -> Iterator[tuple[str, int, RunDir]]:
        """Yield (row, seed, run folder) of every <row>/seed<N> that holds a config, by row and seed."""
        found = []
        for run in find_runs(self.root):
            seed = re.fullmatch(r"seed(\d+)", run.root.name)
            if seed and run.root.parent.parent == self.root:
                found.append((run.root.parent.name, int(seed[1]), run))
        return iter(sorted(found, key=lambda entry: entry[:2]))


def find_row_folders(root: Path) -> tuple[RunsDir, ...]:
    """Find every folder at or below `root` whose children are rows with runs seed<N>."""
    folders = sorted({run.root.parent.parent for run in find_runs(root)})
    inside = (folder for folder in folders if folder.is_relative_to(root))
    return tuple(runs for runs in map(RunsDir, inside) if any(runs.runs()))


class ExperimentsDir(Folder):
    """The folder of all rows: a YAML for each, published numbers, and our measured ones."""

    results_csv = Inside("results.csv")
    """A line per finished run."""
    published_csv = Inside("published.csv")
    """A line per published number, written by people."""
    readme_md = Inside("README.md")
    """The tables."""


class CheckDir(Folder):
    """The folder of a check of videos, see `tools/check_data.py`."""

    videos_jsonl = Inside("videos.jsonl")
    """A line per video."""
    quarantine_txt = Inside("quarantine.txt")
    """The videos that training cannot use, a path per line."""

    def locked(self) -> AbstractContextManager[None]:
        """As `RunDir.locked`."""
        return _locked(self.root)


@contextmanager
def _locked(root: Path, *inside: Path) -> Iterator[None]:
    folders = (root, *inside)
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Permission bits do not tell of read-only mounts and quotas: make a file to find out.
            with TemporaryFile(dir=folder):
                pass
        except OSError as error:
            problem = f"cannot write into the folder {folder}: {error.strerror}"
            raise InputError([f"{problem}; mend that, or choose another with --output"]) from error
    with lock_file(root / "lock"):
        # Whoever wrote these files is gone, since this process now holds the lock.
        for folder in folders:
            for leftover in folder.glob(".*.tmp"):
                leftover.unlink()
        yield


class LaunchDir(Folder):
    """The folder of one submission: pickles and logs of submitit, and how each job ended.

    A folder is used once: submitit names its files after job ids, and another cluster uses the same ids again.
    """

    def outcome_json(self, job_id: str, rank: int) -> Path:
        """Return how process `rank` of a job ended. The file is missing while it runs, or if it was killed."""
        return self.root / f"{job_id}_{rank}_outcome.json"

    def outcomes(self, job_id: str) -> tuple[Path, ...]:
        """List those that exist, the earliest first: what failed first is the cause of the rest."""
        found = self.root.glob(f"{job_id}_*_outcome.json")
        return tuple(sorted(found, key=lambda path: path.stat().st_mtime_ns))

    def error_log(self, job_id: str) -> Path:
        """Return the standard error of the first process (the name is submitit's)."""
        return self.root / f"{job_id}_0_log.err"

    def output_log(self, job_id: str) -> Path:
        """Return the standard output of the first process (the name is submitit's)."""
        return self.root / f"{job_id}_0_log.out"


def new_launch_dir(launches: Path) -> LaunchDir:
    """Name a folder in `launches` that does not exist yet, by the time."""
    now = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    names = (f"{now}-{os.getpid()}", *(f"{now}-{os.getpid()}-{n}" for n in range(1, 1000)))
    return LaunchDir(next(launches / name for name in names if not (launches / name).exists()))


class SweepDir(Folder):
    """The folder of a sweep: runs/<point>/<experiment>/seed<N> are its run folders.

    A point is a choice of values, such as SOLVER.BASE_LR=0.1; "all" where nothing is chosen.
    """

    sweep_json = Inside("sweep.json")
    """What was frozen, from which commit and folder, and the names of all runs."""
    code = Inside("code")
    """The frozen copy of the code."""
    submissions_jsonl = Inside("submissions.jsonl")
    """A line for each time that a run was submitted."""
    cancelled = Inside("cancelled")
    """Exists while nothing more may be started, see `sweep.py cancel`."""
    launches = Inside("launches")
    """Submissions, each a LaunchDir."""
    runs = Inside("runs")
    """The folder that tools/collect.py takes."""

    def config_yaml(self, point: str, experiment: str) -> Path:
        """Return the whole configuration of a point's runs; `experiment_name` finds the name in the path."""
        return self.root / "configs" / point / "experiments" / f"{experiment}.yaml"

    def run(self, name: str) -> RunDir:
        """Return the run folder of <point>/<experiment>/seed<N>."""
        return RunDir(self.runs / name)

    def lock(self) -> AbstractContextManager[None]:
        """Hold the lock of the process that submits. Raises InputError where another process holds it."""
        self.root.mkdir(parents=True, exist_ok=True)
        busy = f"{self.root} is in use by another sweep.py: wait for it, or stop it"
        return lock_file(self.root / "lock", busy)


def default_sweep_dir(experiments: list[str], is_smoke: bool) -> SweepDir:
    """Return runs/sweeps/<what the names of the experiments have in common>; for smoke runs in runs/smoke."""
    common = os.path.commonpath(experiments)  # the whole name where there is one experiment
    name = file_name(common) or "sweep"
    return SweepDir(Path(RUNS, SMOKE if is_smoke else "", "sweeps", name))


def file_name(text: str) -> str:
    """Turn text into the name of a file: _ replaces what means something to a shell or a file system."""
    return re.sub(r"[^\w.,=+-]+", "_", text)[:MAX_NAME]
