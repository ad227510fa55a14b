"""Read what a run asks of a launcher: processes, GPUs, and the options that Slurm users know from sbatch."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LAUNCHERS = ("here", "torchrun", "local", "slurm")
DEFAULT_MINUTES = 240
DEFAULT_WARNING_SECONDS = 120

TEXT_OPTIONS = (
    *("partition", "account", "qos", "mem", "constraint"),
    *("nodelist", "exclude", "reservation", "comment"),
)
"""Options that are passed to sbatch unchanged."""

OURS = {
    *("array", "chdir", "error", "job-name", "open-mode"),
    *("output", "requeue", "signal", "time", "wrap"),
    *("ntasks", "ntasks-per-node", "gpus", "gpus-per-task"),
    *("clusters", "no-requeue", "parsable", "quiet", "wait"),
}
"""Options of sbatch that --sbatch may not change: the launcher sets them, or reads what sbatch prints."""

# With a launcher that cannot use it, an option is an error.
OF_LOCAL_AND_SLURM = ("gpus_per_node", "tasks_per_node")
OF_SLURM = ("nodes", "cpus_per_task", "time_limit", "warning_seconds", "sbatch", *TEXT_OPTIONS)
RESOURCE_OPTIONS = (*OF_LOCAL_AND_SLURM, *OF_SLURM)


@dataclass(frozen=True)
class Resources:
    """The resources of one run."""

    nodes: int = 1
    tasks_per_node: int = 1
    gpus_per_node: int = 0
    cpus_per_task: int = 0  # 0: the loader workers plus the threads of a process
    minutes: int = DEFAULT_MINUTES
    warning_seconds: int = DEFAULT_WARNING_SECONDS  # before the limit
    # Further options of sbatch and their values; True for an option that takes no value.
    sbatch: tuple[tuple[str, str | bool], ...] = ()

    @property
    def num_processes(self) -> int:
        return self.nodes * self.tasks_per_node


def add_resource_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options in two groups. An option that sbatch also has gets the name that it has there."""
    number: dict[str, Any] = {"type": int, "metavar": "N"}
    several = parser.add_argument_group("several processes (--launcher local and slurm)")
    gpus = "GPUs, one process for each (default: slurm 0; local one, where there is one)"
    several.add_argument("--gpus-per-node", **number, help=gpus)
    tasks = "processes on a node without GPUs (default: 1)"
    several.add_argument("--tasks-per-node", **number, help=tasks)
    names = " ".join(f"--{name}" for name in TEXT_OPTIONS)
    slurm = parser.add_argument_group(
        "Slurm (--launcher slurm)", f"{names} go to sbatch as they are."
    )
    slurm.add_argument("--nodes", **number, help="nodes of a run (default: 1)")
    cpus = "CPUs of each process (default: its loader workers plus its threads)"
    slurm.add_argument("--cpus-per-task", **number, help=cpus)
    time = "minutes, h:m:s or d-h:m:s (default: 4:00:00); a longer run is queued again"
    slurm.add_argument("--time-limit", metavar="TIME", help=time)
    warning = f"the run saves so long before the limit (default: {DEFAULT_WARNING_SECONDS})"
    slurm.add_argument("--warning-seconds", **number, help=warning)
    for name in TEXT_OPTIONS:
        slurm.add_argument(f"--{name}", metavar="TEXT", help=argparse.SUPPRESS)
    others = "another option of sbatch, such as gres=scratch:10G; may be repeated"
    slurm.add_argument(
        "--sbatch", action="append", default=[], metavar="OPTION[=VALUE]", help=others
    )


def read_resources(options: argparse.Namespace) -> tuple[Resources, list[str]]:
    """Return the resources that the options ask for, and the problems. Resources with problems may be wrong."""
    values = {name: getattr(options, name) for name in RESOURCE_OPTIONS}
    given = {name: value for name, value in values.items() if value not in (None, [])}
    problems = []
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        users = ("local", "slurm") if name in OF_LOCAL_AND_SLURM else ("slurm",)
        if options.launcher not in users:
            problems.append(f"{flag}: only --launcher {' and '.join(users)} can use it")
        least = 0 if name == "gpus_per_node" else 1
        if isinstance(value, int) and value < least:
            problems.append(f"{flag} {value}: it must be {least} or more")
    minutes, warning = DEFAULT_MINUTES, given.get("warning_seconds", DEFAULT_WARNING_SECONDS)
    if limit := given.get("time_limit"):
        try:
            minutes = minutes_of(limit)
        except ValueError as error:
            problems.append(f"--time-limit {limit} {error}")
    # A job that is warned when it starts would be queued again for ever.
    if warning >= 60 * minutes:
        problems.append(f"--warning-seconds {warning}: --time-limit is {60 * minutes} s")
    gpus, tasks = given.get("gpus_per_node"), given.get("tasks_per_node")
    if gpus is None:
        # A run on this machine takes one GPU if there is one. Slurm gives a job only the GPUs that it asks for.
        uses_gpu = tasks is None and options.launcher != "slurm"
        gpus = min(1, num_gpus()) if uses_gpu else 0
    if gpus and tasks not in (None, gpus):
        problems.append(f"--tasks-per-node {tasks}: there are {gpus} GPUs")
    pairs: dict[str, str | bool] = {name: given[name] for name in TEXT_OPTIONS if name in given}
    for text in options.sbatch:
        name, _, value = text.partition("=")
        if name in OURS or name.replace("-", "_") in RESOURCE_OPTIONS:
            problems.append(f"--sbatch {text}: the launcher sets {name} itself")
        pairs[name] = value or True
    resources = Resources(
        nodes=given.get("nodes", 1),
        tasks_per_node=gpus or tasks or 1,
        gpus_per_node=gpus,
        cpus_per_task=given.get("cpus_per_task", 0),
        minutes=minutes,
        warning_seconds=warning,
        sbatch=tuple(pairs.items()),
    )
    return resources, problems


def num_gpus() -> int:
    # torch takes seconds to import, and --help needs none of it.
    import torch

    return torch.cuda.device_count()


def local_problems(resources: Resources, num_runs: int = 1) -> Iterator[str]:
    """Yield a problem if this machine has too few GPUs for ``num_runs`` at the same time."""
    wanted, there = num_runs * resources.gpus_per_node, num_gpus()
    if wanted > there:
        given = f"--gpus-per-node {resources.gpus_per_node}"
        yield f"{given}: {wanted} are needed at a time, and there are {there}"


def minutes_of(text: str) -> int:
    """Return the minutes of a time as sbatch reads it, rounded up. Raises ValueError if it is not a time.

    Source: man sbatch, --time: "minutes", "minutes:seconds", "hours:minutes:seconds", "days-hours",
    "days-hours:minutes" and "days-hours:minutes:seconds".
    """
    if not re.fullmatch(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}", text):
        raise ValueError("is not a time")
    *days, rest = text.split("-")
    numbers = [int(number) for number in rest.split(":")]
    if days or len(numbers) == 3:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    else:
        hours, (minutes, seconds) = 0, [*numbers, 0][:2]
    total = 60 * (24 * sum(map(int, days)) + hours) + minutes + math.ceil(seconds / 60)
    if not total:
        raise ValueError("is zero")
    return total
