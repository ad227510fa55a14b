"""Read what a run asks of a launcher: processes, GPUs, and the options that Slurm users know from sbatch."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgexp.options import ToolParser

LAUNCHERS = ("here", "torchrun", "local", "slurm")
DEFAULT_MINUTES = 240
DEFAULT_WARNING_SECONDS = 120
MIN_SAVING_SECONDS = 10
"""The shortest time from the warning to the limit. Assumption: enough for a step and a small checkpoint."""
CPUS = Path("/sys/devices/system/cpu")
"""The folder in which Linux describes the cores."""

TEXT_OPTIONS = {
    "partition": "partition (default: the cluster's)",
    "account": "account to charge",
    "qos": "quality of service",
    "mem": "memory of a node, such as 64G (default: the cluster's)",
    "constraint": "features that nodes must have, such as a100",
    "nodelist": "nodes to use",
    "exclude": "nodes not to use",
    "reservation": "reservation to use",
    "comment": "a comment on the job",
}
"""Options that are passed to sbatch unchanged, with their help texts."""

OURS = {
    *("array", "chdir", "error", "job-name", "open-mode"),
    *("output", "requeue", "signal", "time", "wrap"),
    *("ntasks", "ntasks-per-node", "gpus", "gpus-per-task"),
    *("clusters", "no-requeue", "parsable", "quiet", "wait"),
}
"""Options of sbatch that --sbatch may not change: the launcher sets them, or reads what sbatch prints."""

USED_BY: Mapping[str, tuple[str, ...]] = {
    "gpus_per_node": ("local", "slurm"),
    "tasks_per_node": ("local", "slurm"),
    "nodes": ("slurm",),
    "cpus_per_task": ("slurm",),
    "time_limit": ("slurm",),
    "warning_seconds": ("slurm",),
    "sbatch": ("slurm",),
    **dict.fromkeys(TEXT_OPTIONS, ("slurm",)),
}
"""For each option, the launchers that can use it. With any other launcher the option is an error."""


@dataclass(frozen=True)
class Resources:
    """The resources of one run.

    ``cpus_per_task`` 0 stands for the loader workers plus the threads of a process. ``sbatch`` holds further
    (option, value) pairs of sbatch, with True for an option that takes no value. The job may run for ``minutes``.
    It gets a warning ``warning_seconds`` before this limit.
    """

    nodes: int = 1
    tasks_per_node: int = 1
    gpus_per_node: int = 0
    cpus_per_task: int = 0
    minutes: int = DEFAULT_MINUTES
    warning_seconds: int = DEFAULT_WARNING_SECONDS
    sbatch: tuple[tuple[str, str | bool], ...] = ()

    @property
    def num_processes(self) -> int:
        """Return the number of processes of one run, on all nodes."""
        return self.nodes * self.tasks_per_node


def add_resource_arguments(parser: ToolParser) -> None:
    """Add the options in two groups. An option that sbatch also has gets the name that it has there."""
    number: dict[str, Any] = {"type": int, "metavar": "N"}
    several = parser.add_rare_group("several processes (--launcher local and slurm)")
    gpus = "GPUs, one process for each (default: slurm 0; local one, where there is one)"
    several.add_argument("--gpus-per-node", **number, help=gpus)
    several.add_argument(
        "--tasks-per-node", **number, help="processes on a node without GPUs (default: 1)"
    )
    slurm = parser.add_rare_group("Slurm (--launcher slurm)")
    slurm.add_argument("--nodes", **number, help="nodes of a run (default: 1)")
    cpus = "CPUs of each process (default: its loader workers plus its threads)"
    slurm.add_argument("--cpus-per-task", **number, help=cpus)
    time = "minutes, h:m:s or days-h:m:s (default: 4:00:00); a longer run is queued again and continues"
    slurm.add_argument("--time-limit", metavar="TIME", help=time)
    warning = (
        f"seconds before the limit in which the run saves (default: {DEFAULT_WARNING_SECONDS})"
    )
    slurm.add_argument("--warning-seconds", **number, help=warning)
    for name, text in TEXT_OPTIONS.items():
        slurm.add_argument(f"--{name}", metavar="TEXT", help=text)
    others = "any other option of sbatch, such as exclusive or gres=scratch:10G; may be repeated"
    slurm.add_argument("--sbatch", action="append", metavar="OPTION[=VALUE]", help=others)


def read_resources(options: argparse.Namespace) -> tuple[Resources, list[str]]:
    """Return the resources that the options ask for, and the problems. Resources with problems may be wrong."""
    # argparse gives None for an option that is not given. So the default of an option is never a problem for a
    # launcher that cannot use the option.
    given = {name: value for name in USED_BY if (value := getattr(options, name)) is not None}
    problems = list(_option_problems(given, options.launcher))
    minutes = DEFAULT_MINUTES
    warning = given.get("warning_seconds", DEFAULT_WARNING_SECONDS)
    try:
        minutes = minutes_of(given["time_limit"]) if "time_limit" in given else DEFAULT_MINUTES
        if not MIN_SAVING_SECONDS <= warning < 60 * minutes:
            problems.append(
                f"--warning-seconds {warning}: it must be {MIN_SAVING_SECONDS} or more, and less than the "
                f"{60 * minutes} seconds of --time-limit"
            )
    except ValueError as error:
        forms = "minutes, hours:minutes:seconds or days-hours:minutes:seconds, such as 4:00:00"
        problems.append(f"--time-limit {given['time_limit']} {error}: it takes {forms}")
    gpus, tasks = given.get("gpus_per_node"), given.get("tasks_per_node")
    if gpus is None:
        # A run on this machine takes one GPU if there is one. Slurm gives a job only the GPUs that it asks for.
        uses_gpu = tasks is None and options.launcher != "slurm"
        gpus = min(1, num_gpus()) if uses_gpu else 0
    if gpus and tasks not in (None, gpus):
        problems.append(
            f"--tasks-per-node {tasks}: there is one process for each of --gpus-per-node {gpus}; leave it out"
        )
    pairs: dict[str, str | bool] = {name: given[name] for name in TEXT_OPTIONS if name in given}
    for text in given.get("sbatch", []):
        name, sign, value = text.partition("=")
        is_ours = name.replace("-", "_") in USED_BY
        if not (
            re.fullmatch(r"[a-z][a-z-]*", name)
            and bool(value) == bool(sign)
            and value.isprintable()
        ):
            example = "--sbatch gres=scratch:10G or --sbatch exclusive"
            problems.append(
                f"--sbatch {text!r}: it takes OPTION=VALUE or OPTION, such as {example}"
            )
        elif is_ours or name in OURS:
            remedy = f"use --{name}" if is_ours else "it cannot be changed"
            problems.append(f"--sbatch {text}: {remedy}")
        elif name in pairs:
            problems.append(f"--sbatch {text}: {name} is given twice; give one value")
        else:
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


def _option_problems(given: Mapping[str, Any], launcher: str) -> Iterator[str]:
    """Yield what is wrong with single options: the launcher cannot use them, or their value is bad."""
    for name, value in given.items():
        flag = "--" + name.replace("_", "-")
        if launcher not in USED_BY[name]:
            users = " and ".join(USED_BY[name])
            yield f"{flag}: --launcher {launcher} cannot use it, only {users} can; leave it out"
        least = 0 if name == "gpus_per_node" else 1
        if isinstance(value, int) and value < least:
            yield f"{flag} {value}: it must be {least} or more"
        # submitit writes the text into a line of the batch script. A line end would start a line of its own.
        if name in TEXT_OPTIONS and not (value.strip() and value.isprintable()):
            yield f"{flag} {value!r}: it takes one line of printable characters"


def num_gpus() -> int:
    """Return the number of GPUs of this machine."""
    # torch takes seconds to import, and --help needs none of it.
    import torch

    return torch.cuda.device_count()


def local_problems(resources: Resources, num_runs: int = 1) -> Iterator[str]:
    """Yield a problem if this machine has too few GPUs for ``num_runs`` at the same time."""
    wanted, there = num_runs * resources.gpus_per_node, num_gpus()
    if wanted > there:
        yield (
            f"--gpus-per-node {resources.gpus_per_node}: {num_runs} at a time need {wanted} GPUs, and this "
            f"machine has {there}; give fewer, or --gpus-per-node 0 with DEVICE cpu"
        )


def share_of_cores(slot: int, num_runs: int, system: Path = CPUS) -> tuple[int, ...]:
    """Return the cores of this process that belong to one of ``num_runs`` parallel runs, in ``slot`` from 0.

    All shares have the same size, so that runs take comparable times; some cores may be left over. With more runs
    than cores, several runs get the same core. Empty if the system cannot bind a process to cores.
    """
    if not hasattr(os, "sched_getaffinity"):
        return ()

    def place(core: int) -> tuple[int, int]:
        # The hardware threads of one physical core come one after the other, so that one run gets all of them.
        path = system / f"cpu{core}" / "topology" / "thread_siblings_list"
        siblings = re.match(r"\d+", path.read_text()) if path.exists() else None
        return (int(siblings[0]) if siblings else core, core)

    cores = sorted(os.sched_getaffinity(0), key=place)
    size = max(1, len(cores) // num_runs)
    first = slot * size % len(cores)
    return tuple(cores[first : first + size])


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
