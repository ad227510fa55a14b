"""Describe the versions, the machine and the commit with which numbers were measured."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from mgexp.registry import imported

PACKAGES = ("torchvision", "av", "numpy", "pytorchvideo", "fvcore")

NOT_INSTALLED = "not installed"

REPOSITORY = Path(__file__).resolve().parents[2]
COMMIT_TXT = "commit.txt"
"""The file in a frozen copy of the code that holds the commit of this code."""

CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
"""The file of Linux (cgroup v2) with the processor time of a container in a period, or "max", and the period."""

# These files are evidence, not code: collecting one run must not make the next one "dirty". The run folders of a
# study keep the configurations of the shorter baselines in budget/.
EVIDENCE = ("README.md", "prose.md", "runs.jsonl", "report.*", "figures/*", "budget/*.yaml")
NOT_CODE = (
    ":(exclude)experiments/results.csv",
    *(f":(exclude,glob)experiments/**/{name}" for name in EVIDENCE),
)


def describe() -> dict[str, str | int | None]:
    """Describe with what this process measures. The host's name is left out, because results are published."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": git_commit(REPOSITORY),
        "python": platform.python_version(),
        # This version names the build, such as +cpu.
        "torch": str(torch.__version__),
        **{package: version_of(package) for package in PACKAGES},
        "cpu": cpu_model(),
        "cores": num_cores(),
        "threads": torch.get_num_threads(),
        "spin_count": os.environ.get("GOMP_SPINCOUNT"),
        "imports": ", ".join(map(str, imported())) or None,  # the files of --import
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def num_cores() -> int:
    """Count the cores that this process may use."""
    # os.cpu_count counts the whole machine, but Slurm and containers give a process a part of its cores.
    return within_quota(len(os.sched_getaffinity(0)))


def within_quota(num_cores: int) -> int:
    """Return ``num_cores``, or fewer if this container may use less processor time, but at least 1."""
    try:
        quota, period = map(int, CPU_MAX.read_text().split())
    # There is no such file, or the quota is "max".
    except (OSError, ValueError):
        return num_cores
    return max(1, min(num_cores, quota // period))


def git_commit(repository: Path) -> str:
    """Return the commit of `repository`, with "-dirty" if files differ; "unknown" if it is no top folder."""
    # A frozen copy has no .git, and may lie inside the working tree of another commit.
    if (repository / COMMIT_TXT).is_file():
        return (repository / COMMIT_TXT).read_text(encoding="utf-8").strip()
    # A package that is installed inside another repository must not report the commit of that one.
    top = _git(repository, "rev-parse", "--show-toplevel")
    commit = _git(repository, "rev-parse", "HEAD")
    if not top or not commit or Path(top).resolve() != repository.resolve():
        return "unknown"
    # None, for a git that failed, differs from "" and so counts as changed.
    changes = _git(repository, "status", "--porcelain", "--", ".", *NOT_CODE)
    return commit if changes == "" else f"{commit}-dirty"


def _git(repository: Path, *arguments: str) -> str | None:
    """Return what git prints, or None where it fails or is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(repository), *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def version_of(package: str) -> str:
    """Return the version of an installed package, or NOT_INSTALLED."""
    try:
        return version(package)
    except PackageNotFoundError:
        return NOT_INSTALLED


def cpu_model() -> str:
    """Name the processor, and the instructions that torch uses on it: hosts of one name may differ in these."""
    # On many systems platform.processor() gives only the architecture, or nothing.
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    name = next(names, platform.processor() or platform.machine())
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"
