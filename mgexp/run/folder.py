"""Where launchers and sweeps leave their files, as `run_dir.py` is for runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryFile

from mgexp.errors import InputError
from mgexp.run.lock import RunLock

RUNS = "runs"
SMOKE = "smoke"

METRIC_NAMES = {"top1": "top-1", "top5": "top-5", "map": "mAP"}
"""Metrics of evaluations.jsonl and result.json, and how people write them."""


@dataclass(frozen=True)
class RunDir:
    """The folder of one run, by default runs/<experiment>/seed<N>."""

    root: Path

    @property
    def config_yaml(self) -> Path:
        """The whole frozen configuration of the run."""
        return self.root / "config.yaml"

    @property
    def environment_json(self) -> Path:
        """Versions and machine, as `mgexp.run.environment.describe` gives them."""
        return self.root / "environment.json"

    @property
    def starts_jsonl(self) -> Path:
        """A line per start: its environment, the step it went on after, what --override let change, and
        the keys that were given beside the YAML.

        Starts that came to no checkpoint are forgotten.
        """
        return self.root / "starts.jsonl"

    @property
    def schedule_csv(self) -> Path:
        """The table of phases."""
        return self.root / "schedule.csv"

    @property
    def metrics_jsonl(self) -> Path:
        """A line per logged step."""
        return self.root / "metrics.jsonl"

    @property
    def evaluations_jsonl(self) -> Path:
        """A line per evaluation."""
        return self.root / "evaluations.jsonl"

    @property
    def dataset_json(self) -> Path:
        """What identifies the videos; the number of those for training is N of the schedule."""
        return self.root / "dataset.json"

    @property
    def timeouts_jsonl(self) -> Path:
        """A line per video that hung, with its position in the stream: a resumed run leaves it out there again."""
        return self.root / "timeouts.jsonl"

    @property
    def init_weights_json(self) -> Path:
        """What became of each tensor of TRAIN.INIT_WEIGHTS and of the model."""
        return self.root / "init_weights.json"

    @property
    def log_txt(self) -> Path:
        """What the run printed."""
        return self.root / "log.txt"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.root / "checkpoints"

    @property
    def model(self) -> Path:
        """The weights that the final evaluation scored."""
        return self.root / "model.pt"

    @property
    def confusion_csv(self) -> Path:
        """For which class the final evaluation took the videos of each class."""
        return self.root / "confusion.csv"

    @property
    def result_json(self) -> Path:
        """Written last: a run is finished when this file exists."""
        return self.root / "result.json"

    @property
    def tensorboard(self) -> Path:
        """Events for TensorBoard, where TENSORBOARD.LOG_DIR does not say another folder."""
        return self.root / "tensorboard"

    def tensorboard_in(self, log_dir: Path) -> Path:
        """This run's folder in one for many runs: its path in runs/, else its whole path, without links."""
        whole = self.root.resolve()
        above = next(
            (folder for folder in whole.parents if folder.name == RUNS), Path(whole.anchor)
        )
        return log_dir / whole.relative_to(above)

    @property
    def wandb_json(self) -> Path:
        """The id of this run at W&B, and what it was told there before the last start."""
        return self.root / "wandb.json"

    @property
    def lock(self) -> Path:
        """Held by the process that writes into this folder."""
        return self.root / "lock"

    def scores(self, protocol: str) -> Path:
        """Scores of every validation video under a full protocol, such as 10x3_forward."""
        return self.root / f"scores_{protocol}.npz"

    @property
    def evaluation_parts(self) -> Path:
        """The folder of what is done of an evaluation under way; gone when the run is finished."""
        return self.root / "evaluation_parts"

    def evaluation_part(self, step: int, name: str) -> Path:
        """One process's part of the evaluation after `step` steps; `name`: protocol and process."""
        return self.evaluation_parts / f"step_{step:08d}_{name}.pt"

    def drop_evaluation_parts(self, after_step: int = -1) -> None:
        """Forget the parts of evaluations after more than `after_step` steps; by default all."""
        for path in self.evaluation_parts.glob("step_*.pt"):
            if int(path.name.split("_")[1]) > after_step:
                path.unlink(missing_ok=True)
        if self.evaluation_parts.is_dir() and not any(self.evaluation_parts.iterdir()):
            self.evaluation_parts.rmdir()

    def checkpoint(self, step: int) -> Path:
        """The checkpoint taken before `step`, that is, after `step` steps."""
        return self.checkpoints / f"step_{step:08d}.pt"

    def damaged_checkpoint(self, step: int) -> Path:
        """Where a checkpoint that is damaged is kept, to look at it."""
        return self.checkpoint(step).with_suffix(".pt.damaged")

    def checkpoint_steps(self) -> tuple[int, ...]:
        """Steps of the checkpoints that exist, ascending; the last one is where to resume."""
        names = (re.fullmatch(r"step_(\d+)", path.stem) for path in self.checkpoints.glob("*.pt"))
        return tuple(sorted(int(name[1]) for name in names if name))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, hold its lock, and clear what a killed writer left half-written.

        Raises InputError where another process holds the lock.
        """
        with _locked(self.lock, (self.root, self.checkpoints, self.evaluation_parts)):
            yield


@dataclass(frozen=True)
class RunsDir:
    """A folder of rows: <root>/<row>/seed<N> are run folders, the report on them lies in root."""

    root: Path

    @property
    def report_md(self) -> Path:
        """The table."""
        return self.root / "report.md"

    @property
    def report_html(self) -> Path:
        """The same as one page with its figures in it."""
        return self.root / "report.html"

    @property
    def figures(self) -> Path:
        """The folder of the figures."""
        return self.root / "figures"

    def figure(self, name: str, kind: str) -> Path:
        """A figure of the report; kind: svg, pdf or png."""
        return self.figures / f"{name}.{kind}"

    @property
    def stored_jsonl(self) -> Path:
        """Finished runs, kept beside their YAMLs: see `record/stored.py`."""
        return self.root / "runs.jsonl"

    def runs(self) -> Iterator[tuple[str, int, RunDir]]:
        """(row, seed, run folder) of every <row>/seed<N> that holds a config, by row and seed."""
        found = []
        for run in find_runs(self.root):
            seed = re.fullmatch(r"seed(\d+)", run.root.name)
            if seed and run.root.parent.parent == self.root:
                found.append((run.root.parent.name, int(seed[1]), run))
        return iter(sorted(found, key=lambda entry: entry[:2]))


@dataclass(frozen=True)
class ExperimentsDir:
    """The folder of all rows: a YAML each, what was published of them, and what was measured."""

    root: Path

    @property
    def results_csv(self) -> Path:
        """A line per finished run."""
        return self.root / "results.csv"

    @property
    def published_csv(self) -> Path:
        """A line per published number, written by people."""
        return self.root / "published.csv"

    @property
    def readme_md(self) -> Path:
        """The tables."""
        return self.root / "README.md"


@dataclass(frozen=True)
class CheckDir:
    """The folder of a check of videos, see `tools/check_data.py`."""

    root: Path

    @property
    def videos_jsonl(self) -> Path:
        """A line per video."""
        return self.root / "videos.jsonl"

    @property
    def quarantine_txt(self) -> Path:
        """The videos that training cannot use, a path per line."""
        return self.root / "quarantine.txt"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """As `RunDir.locked`."""
        with _locked(self.root / "lock", (self.root,)):
            yield


@contextmanager
def _locked(lock: Path, folders: Sequence[Path]) -> Iterator[None]:
    """Make the folders, hold the lock, and clear what a killed writer left half-written.

    Raises InputError where one cannot be made or written into.
    """
    for folder in folders:
        _make_writable(folder)
    with RunLock(lock):
        for folder in folders:
            for leftover in folder.glob(".*.tmp"):
                leftover.unlink()
        yield


def _make_writable(folder: Path) -> None:
    """Make the folder, and try whether a file can be made in it: who may write says only that."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        problem = f"cannot write into the folder {folder}: {error.strerror}"
        raise InputError([f"{problem}; mend that, or choose another with --output"]) from error


def default_run_dir(experiment: str, seed: int, is_smoke: bool) -> RunDir:
    """runs/<experiment>/seed<N>; a smoke run has the same place in runs/smoke."""
    return RunDir(Path(RUNS, SMOKE if is_smoke else "", experiment, f"seed{seed}"))


def find_runs(root: Path) -> tuple[RunDir, ...]:
    """Every run folder at or below `root`: a folder that holds config.yaml. Sorted by path.

    Smoke runs are left out, unless `root` is their folder or one below it.
    """
    configs = sorted(root.rglob(RunDir(root).config_yaml.name))
    runs = (config.parent for config in configs)
    return tuple(RunDir(run) for run in runs if SMOKE not in run.relative_to(root).parts)


def find_row_folders(root: Path) -> tuple[RunsDir, ...]:
    """Every folder at or below `root` whose children are rows with runs seed<N>."""
    folders = sorted({run.root.parent.parent for run in find_runs(root)})
    inside = (folder for folder in folders if folder.is_relative_to(root))
    return tuple(runs for runs in map(RunsDir, inside) if any(runs.runs()))


COMMIT_TXT = "commit.txt"
"""In a frozen copy of the code: the commit that it is a copy of."""

MAX_NAME = 100
"""Characters of a folder's name; file systems allow 255 bytes."""


@dataclass(frozen=True)
class LaunchDir:
    """The folder of one submission: pickles and logs of submitit, and how each job ended.

    A folder is used once: submitit names its files after job ids, and these repeat in another cluster.
    """

    root: Path

    def outcome_json(self, job_id: str, rank: int) -> Path:
        """How process `rank` of a job ended; none while it runs, or if it was killed."""
        return self.root / f"{job_id}_{rank}_outcome.json"

    def outcomes(self, job_id: str) -> tuple[Path, ...]:
        """Those that exist, the earliest first: what failed first is the cause of the rest."""
        found = self.root.glob(f"{job_id}_*_outcome.json")
        return tuple(sorted(found, key=lambda path: path.stat().st_mtime_ns))

    def error_log(self, job_id: str) -> Path:
        """Standard error of the first process (the name is submitit's)."""
        return self.root / f"{job_id}_0_log.err"

    def output_log(self, job_id: str) -> Path:
        """Standard output of the first process (the name is submitit's)."""
        return self.root / f"{job_id}_0_log.out"


@dataclass(frozen=True)
class LaunchesDir:
    """The folder of all submissions of a run or a sweep, beside the code that they run."""

    root: Path

    def new(self) -> LaunchDir:
        """A folder that does not exist yet, named by the time."""
        now = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
        names = (f"{now}-{os.getpid()}", *(f"{now}-{os.getpid()}-{n}" for n in range(1, 1000)))
        return LaunchDir(
            next(self.root / name for name in names if not (self.root / name).exists())
        )


@dataclass(frozen=True)
class SweepDir:
    """The folder of a sweep: runs/<point>/<experiment>/seed<N> are its run folders.

    A point is a choice of values, such as SOLVER.BASE_LR=0.1; "all" where nothing is chosen.
    """

    root: Path

    @property
    def sweep_json(self) -> Path:
        """What was frozen, from which commit and folder, and the names of all runs."""
        return self.root / "sweep.json"

    @property
    def code(self) -> Path:
        """The frozen copy of the code."""
        return self.root / "code"

    @property
    def submissions_jsonl(self) -> Path:
        """A line for each time that a run was submitted."""
        return self.root / "submissions.jsonl"

    @property
    def cancelled(self) -> Path:
        """There while nothing more may be started, see `sweep.py cancel`."""
        return self.root / "cancelled"

    @property
    def launches(self) -> LaunchesDir:
        """Logs."""
        return LaunchesDir(self.root / "launches")

    @property
    def runs(self) -> Path:
        """The folder that tools/collect.py takes."""
        return self.root / "runs"

    def config_yaml(self, point: str, experiment: str) -> Path:
        """The whole configuration of the runs of a point; `experiment_name` finds the name in the path."""
        return self.root / "configs" / point / "experiments" / f"{experiment}.yaml"

    def run(self, name: str) -> RunDir:
        """The run folder of <point>/<experiment>/seed<N>."""
        return RunDir(self.runs / name)

    def lock(self) -> RunLock:
        """Held by the process that submits."""
        self.root.mkdir(parents=True, exist_ok=True)
        return RunLock(
            self.root / "lock",
            busy=f"{self.root} is in use by another sweep.py: wait for it, or stop it",
        )


def default_sweep_dir(experiments: list[str], is_smoke: bool) -> SweepDir:
    """runs/sweeps/<what the names of the experiments have in common>; of smoke runs in runs/smoke."""
    common = os.path.commonpath(experiments)  # of one, the whole name
    name = file_name(common) or "sweep"
    return SweepDir(Path("runs", SMOKE if is_smoke else "", "sweeps", name))


def file_name(text: str) -> str:
    """`text` as the name of a file: what may mean something to a shell or a file system is a low line."""
    return re.sub(r"[^\w.,=+-]+", "_", text)[:MAX_NAME]


def launches_of(run_dir: RunDir) -> LaunchesDir:
    """Where a run that was submitted on its own leaves its logs and its code."""
    return LaunchesDir(run_dir.root / "launches")
