"""Name the files in every folder that mgexp writes: runs, rows, sweeps, submissions and checks."""

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
GROUPS = "groups.json"  # the group of each video
SMOKE = "smoke"
SMOKE_GIVEN = "--smoke"
"""The mark of a smoke run in starts.jsonl. It stands among the keys that the command line gave."""
MAX_NAME = 100
"""The most characters in the name of a folder. File systems allow 255 bytes."""

METRIC_NAMES = {"top1": "top-1", "top5": "top-5", "map": "mAP"}
"""Metrics of evaluations.jsonl and result.json by which runs are compared, and how people write them."""
MORE_METRICS = {
    "ap50": "AP50",
    "ap_small": "AP small",
    "ap_medium": "AP medium",
    "ap_large": "AP large",
}
"""Further metrics of boxes: average precision at an IoU of 0.5, and of boxes of three sizes."""


@dataclass(frozen=True)
class Folder:
    """A folder of mgexp. The classes below name the files in it."""

    root: Path


@dataclass(frozen=True)
class Inside:
    """A path in a folder: ``config_yaml = Inside("config.yaml")`` makes run.config_yaml a path below run.root."""

    name: str

    # Python calls this method when the attribute of a folder is read.
    def __get__(self, folder: Folder, owner: type | None = None) -> Path:
        return folder.root / self.name


class RunDir(Folder):
    """The folder of one run, by default runs/<experiment>/seed<N>."""

    config_yaml = Inside("config.yaml")  # the whole configuration
    environment_json = Inside("environment.json")  # versions and machine
    # A line per start: its environment, the step after which it continued, the changes that --override allowed,
    # and the keys that the command line or a grid gave, with SMOKE_GIVEN for a smoke run. Starts before the first
    # checkpoint are left out.
    starts_jsonl = Inside("starts.jsonl")
    schedule_csv = Inside("schedule.csv")  # the table of phases
    metrics_jsonl = Inside("metrics.jsonl")  # a line per logged step
    evaluations_jsonl = Inside("evaluations.jsonl")  # a line per evaluation
    # What identifies the videos, and the number N of training videos for which the schedule is made.
    dataset_json = Inside("dataset.json")
    # A line per video that failed, with its position in the stream of clips. A resumed run leaves the video out
    # at the same position, so that it trains on the same clips. A video that hung has no position.
    failures_jsonl = Inside("failures.jsonl")
    # What became of each tensor of TRAIN.INIT_WEIGHTS and of the model.
    init_weights_json = Inside("init_weights.json")
    log_txt = Inside("log.txt")  # what the run printed
    checkpoints = Inside("checkpoints")
    model = Inside("model.pt")  # the weights of the result
    # The names of the classes 0, 1, …, one on each line. Data sets without names have no such file.
    classes_txt = Inside("classes.txt")
    result_json = Inside("result.json")  # written last
    wandb_json = Inside("wandb.json")  # the id of this run at W&B
    lock = Inside("lock")  # names its process
    launches = Inside("launches")  # a LaunchDir per submission

    def class_names(self) -> tuple[str, ...]:
        if not self.classes_txt.is_file():
            return ()
        return tuple(self.classes_txt.read_text(encoding="utf-8").splitlines())

    def tensorboard_in(self, log_dir: Path) -> Path:
        """Return this run's folder in ``log_dir``. Its name is the path below runs/, or else the whole path."""
        whole = self.root.resolve()
        # A sweep in runs/ has a runs/ of its own, whose paths are those of other sweeps, too.
        *_, above = Path(whole.anchor), *(folder for folder in whole.parents if folder.name == RUNS)
        return log_dir / whole.relative_to(above)

    def scores(self, protocol: str) -> Path:
        """Return the file with the scores of all validation videos, for a full protocol such as 10x3_forward."""
        return self.root / f"scores_{protocol}.npz"

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step_{step:08d}.pt"

    def damaged_checkpoint(self, step: int) -> Path:
        """Return where a damaged checkpoint is kept for people to look at."""
        return self.checkpoint(step).with_suffix(".pt.damaged")

    def checkpoint_steps(self) -> tuple[int, ...]:
        """List the steps of the existing checkpoints in ascending order. A run resumes from the last one."""
        # The name of a damaged checkpoint ends with .pt.damaged, so it is left out.
        names = (re.fullmatch(r"step_(\d+)", path.stem) for path in self.checkpoints.glob("*.pt"))
        return tuple(sorted(int(name[1]) for name in names if name))

    def locked(self) -> AbstractContextManager[None]:
        """Make the folder, hold its lock, and delete what a killed writer left half-written."""
        return _locked(self.root, self.checkpoints)


def default_run_dir(experiment: str, seed: int, is_smoke: bool) -> RunDir:
    """Return runs/<experiment>/seed<N>. A smoke run has the same place in runs/smoke."""
    return RunDir(Path(RUNS, SMOKE if is_smoke else "", experiment, f"seed{seed}"))


def find_runs(root: Path) -> tuple[RunDir, ...]:
    """Find every folder with a config.yaml at or below `root`, sorted. Leave out smoke runs below it."""
    configs = sorted(root.rglob(RunDir(root).config_yaml.name))
    runs = (config.parent for config in configs)
    return tuple(RunDir(run) for run in runs if SMOKE not in run.relative_to(root).parts)


class RunsDir(Folder):
    """A folder of rows: <root>/<row>/seed<N> are run folders, and root contains the report on them."""

    report_md = Inside("report.md")
    report_html = Inside("report.html")  # the same with its figures
    readme_md = Inside("README.md")  # the page of a study
    prose_md = Inside("prose.md")  # what people write for that page
    figures = Inside("figures")
    stored_jsonl = Inside("runs.jsonl")  # finished runs

    def figure(self, name: str, kind: str) -> Path:
        return self.figures / f"{name}.{kind}"

    def runs(self) -> list[tuple[str, int, RunDir]]:
        """List (row, seed, run folder) of every <row>/seed<N> with a config.yaml, sorted by row and seed."""
        runs = []
        for run in find_runs(self.root):
            seed = re.fullmatch(r"seed(\d+)", run.root.name)
            if seed and run.root.parent.parent == self.root:
                runs.append((run.root.parent.name, int(seed[1]), run))
        return sorted(runs, key=lambda entry: entry[:2])


def find_row_folders(root: Path) -> tuple[RunsDir, ...]:
    """Find every folder at or below `root` whose children are rows with runs seed<N>."""
    # If `root` is a row or a run, its folder of rows is above `root` and is left out.
    folders = sorted({run.root.parent.parent for run in find_runs(root)})
    inside = (folder for folder in folders if folder.is_relative_to(root))
    return tuple(runs for runs in map(RunsDir, inside) if runs.runs())


class CheckDir(Folder):
    """The folder of a check of videos, see `tools/check_data.py`."""

    videos_jsonl = Inside("videos.jsonl")  # a line per video
    quarantine_txt = Inside("quarantine.txt")  # what training cannot use

    def locked(self) -> AbstractContextManager[None]:
        return _locked(self.root)


@contextmanager
def _locked(root: Path, *inside: Path) -> Iterator[None]:
    folders = (root, *inside)
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Permission bits do not show read-only mounts and quotas. Only a test file does.
            with TemporaryFile(dir=folder):
                pass
        except OSError as error:
            problem = f"cannot write into the folder {folder}: {error.strerror}"
            raise InputError([problem]) from error
    with lock_file(root / "lock"):
        # This process now holds the lock, so the process that wrote these files has ended.
        for folder in folders:
            for leftover in folder.glob(".*.tmp"):
                leftover.unlink()
        yield


class LaunchDir(Folder):
    """The folder of one submission: pickles and logs of submitit, and how each job ended.

    A folder is used only once, because job ids may come again, and submitit would read the results of an old job.
    """

    frozen_yaml = Inside("frozen.yaml")  # of a run alone

    def outcome_json(self, job_id: str, rank: int) -> Path:
        """Return the file that says how process `rank` of a job ended. A killed process does not write it."""
        return self.root / f"{job_id}_{rank}_outcome.json"

    def outcomes(self, job_id: str) -> tuple[Path, ...]:
        """List the outcome files of a job, the earliest first: the first failure is the cause of the others."""
        paths = self.root.glob(f"{job_id}_*_outcome.json")
        return tuple(sorted(paths, key=lambda path: path.stat().st_mtime_ns))

    def error_log(self, job_id: str) -> Path:
        """Return the standard error of the first process (the name is submitit's)."""
        return self.root / f"{job_id}_0_log.err"


def new_launch_dir(launches: Path) -> LaunchDir:
    """Name a new folder after the time, to the microsecond, and the process."""
    now = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S-%f")
    return LaunchDir(launches / f"{now}-{os.getpid()}")


class SweepDir(Folder):
    """The folder of a sweep: runs/<point>/<experiment>/seed<N> are its run folders."""

    sweep_json = Inside("sweep.json")  # working directory and runs
    code = Inside("code")  # the frozen copy of the code
    configs = Inside("configs")  # the frozen YAMLs
    submissions_jsonl = Inside("submissions.jsonl")  # a line per submission of a run
    cancelled = Inside("cancelled")  # by `sweep.py cancel`
    launches = Inside("launches")  # a LaunchDir per submission
    runs = Inside("runs")  # for tools/collect.py

    def config_yaml(self, point: str, experiment: str) -> Path:
        return self.configs / point / "experiments" / f"{experiment}.yaml"

    def run(self, name: str) -> RunDir:
        return RunDir(self.runs / name)

    def lock(self) -> AbstractContextManager[None]:
        """Hold the lock of the process that submits."""
        self.root.mkdir(parents=True, exist_ok=True)
        busy = f"{self.root} is in use by another sweep.py: wait for it, or stop it"
        return lock_file(self.root / "lock", busy)


def default_sweep_dir(experiments: list[str], is_smoke: bool) -> SweepDir:
    """Return runs/sweeps/<the common beginning of the experiments' names>. Smoke runs have it in runs/smoke."""
    name = file_name(os.path.commonpath(experiments)) or "sweep"
    return SweepDir(Path(RUNS, SMOKE if is_smoke else "", "sweeps", name))


def file_name(text: str) -> str:
    """Turn text into the name of a file. _ replaces characters that have a meaning for a shell or file system."""
    return re.sub(r"[^\w.,=+-]+", "_", text)[:MAX_NAME]
