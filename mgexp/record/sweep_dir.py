"""Where launchers and sweeps leave their files, as `run_dir.py` is for runs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from mgexp.record.run_dir import SMOKE, RunDir
from mgexp.record.run_lock import RunLock

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
