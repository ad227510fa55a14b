#!/usr/bin/env python3
"""Run rows × seeds × values, on Slurm as a job array, or on this machine.

    python tools/sweep.py experiments/quickstart/*.yaml --seeds 3 --grid SOLVER.BASE_LR=0.1,0.2 --dry-run
    python tools/sweep.py experiments/main/*/*.yaml --seeds 3 --launcher slurm --partition P --gpus-per-node 8
    python tools/sweep.py status DIR
    python tools/sweep.py cancel DIR

The first call checks every run before it writes anything. Then it freezes the code and the configurations in the
folder of the sweep. The same call again starts the runs that are neither finished nor queued nor running, and they
continue where they stopped. tools/collect.py reports on the folder runs/ of the sweep.
Exit codes: 0, or 2 for bad input (one message). Runs on this machine give the worst exit code of run_net.py.
"""

from __future__ import annotations

import argparse
import itertools
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import simplejson

from mgexp.config.load import experiment_name
from mgexp.config.study import MAX_SEEDS, STUDY_YAML
from mgexp.config.values import MAX_INT, from_text
from mgexp.errors import InputError, collected, raise_problems
from mgexp.launch.resources import Resources, add_resource_arguments, local_problems, read_resources
from mgexp.launch.run import with_cpus
from mgexp.launch.sweep import (
    Point,
    Sweep,
    SweepRun,
    age_of_code,
    cancel,
    check_sweep,
    freeze,
    run_on_this_machine,
    submit_array,
)
from mgexp.launch.sweep_state import COLUMNS, IN_HAND, MISSED_IT, RunState, all_names, states
from mgexp.options import ToolParser, add_import_option, local_folder, run_tool, say
from mgexp.run.folder import SweepDir, default_sweep_dir
from mgexp.text import aligned, counted
from mgexp.train.result import Outcome

BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__, "YAML ... [options] [KEY VALUE ...]")
    parser.add_argument(
        "words",
        nargs="+",
        metavar="YAML ... [KEY VALUE ...]",
        help="experiments, then configuration keys for all of them",
    )
    add_import_option(parser)
    parser.add_argument(
        "--seeds",
        default="1",
        metavar="N",
        help="number of seeds from 0, or a list such as 0,5 (default: 1)",
    )
    parser.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="KEY=V1,V2",
        help="values to try; may be repeated, and then every combination is run",
    )
    parser.add_argument(
        "--output",
        type=local_folder,
        metavar="DIR",
        help="folder of the sweep (default: runs/sweeps/…)",
    )
    parser.add_argument(
        "--launcher",
        choices=("here", "local", "slurm"),
        default="here",
        help="here: one after another, with logs (default); local: in the background of this machine; slurm: jobs",
    )
    parser.add_argument(
        "--parallel",
        type=int,
        metavar="N",
        help="runs at a time (local: 1, slurm: all); local runs get threads for 1/N of the cores",
    )
    parser.add_argument("--smoke", action="store_true", help="as run_net.py --smoke")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be submitted")
    parser.add_argument("--json", action="store_true", help="print for machines")
    add_resource_arguments(parser)
    return parser.parse_intermixed_args(arguments)


def parse_command(name: str, arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"sweep.py {name}")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of the sweep")
    parser.add_argument("--json", action="store_true", help="print for machines")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run a command, and turn an error into an exit code and one message."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", ())
    if name in COMMANDS:
        return COMMANDS[name](parse_command(name, rest))
    return run(parse(arguments))


def status(options: argparse.Namespace) -> int:
    """Print the state and the progress of each run."""
    folder = SweepDir(options.folder)
    show(states(folder, all_names(folder)), options.json)
    return 0


def stop(options: argparse.Namespace) -> int:
    """Cancel the runs that are queued or running."""
    # all_names refuses a folder that is not a sweep. `cancel` would write a file into it.
    folder = SweepDir(options.folder)
    all_names(folder)
    names = cancel(folder)
    if options.json:
        print(simplejson.dumps({"cancelled": names}, indent=2))
    else:
        head = f"{len(names)} cancelled; start the same sweep again to continue them"
        print("\n".join([head, *names]))
    return 0


COMMANDS = {"status": status, "cancel": stop}


def run(options: argparse.Namespace) -> int:
    """Check all runs, freeze the sweep, and start what is missing."""
    sweep, resources, problems = read(options)
    check_sweep(sweep, resources, options.launcher != "slurm", problems)
    if options.dry_run:
        return preview(sweep, options.json)
    # A task starts in the folder of the frozen code, so all paths of its submission must be absolute.
    with_folder = replace(sweep, folder=SweepDir(sweep.folder.root.absolute()))
    # The lock comes after the checks, which write nothing. A new call also ends an earlier cancel.
    with sweep.folder.lock():
        sweep.folder.cancelled.unlink(missing_ok=True)
        freeze(with_folder, with_folder.runs)
        return start(with_folder, resources, options)


def start(sweep: Sweep, resources: Resources, options: argparse.Namespace) -> int:
    """Start the runs that are neither finished nor queued nor running, and say how to follow them."""
    now = states(sweep.folder, [run.name for run in sweep.runs])
    todo = [run for run, state in zip(sweep.runs, now, strict=True) if state.state not in IN_HAND]
    say(age_of_code(sweep.folder))
    num_known = len(sweep.runs) - len(todo)
    say(
        f"{sweep.folder.root}: {counted(len(sweep.runs), 'run')}, {num_known} finished or in progress"
    )
    has_missed = any(state.state == MISSED_IT for state in now) and options.launcher != "slurm"
    if not todo:
        return Outcome.MISSED if has_missed else Outcome.OK
    root = shlex.quote(str(sweep.folder.root))
    say(f"follow: python tools/sweep.py status {root}\nstop:   python tools/sweep.py cancel {root}")
    if options.launcher == "slurm":
        ids = submit_array(sweep, todo, resources, options.parallel or len(todo))
        say(f"submitted: {counted(len(ids), 'run')}, job {ids[0].split('_')[0]}")
        return 0
    shows_log = options.launcher == "here"
    outcome = run_on_this_machine(sweep, todo, resources, options.parallel or 1, shows_log, say)
    return Outcome.MISSED if has_missed and outcome is Outcome.OK else outcome


def read(options: argparse.Namespace) -> tuple[Sweep, Resources, list[str]]:
    """Return the sweep and its resources, and the problems after which further checks are still possible."""
    # A shell's *.yaml also names the study of a folder, which is no row.
    words = [word for word in options.words if Path(word).name != STUDY_YAML]
    paths = [word for word in words if word.endswith((".yaml", ".yml"))]
    resources, problems = read_resources(options)
    if options.parallel is not None and (options.launcher == "here" or options.parallel < 1):
        problems.append(f"--parallel {options.parallel}: local and slurm take it, 1 or more")
    if options.launcher != "slurm":
        problems += local_problems(resources, options.parallel or 1)
    # The name of an experiment is a part of the path of its runs, so two YAMLs must not have the same name.
    experiments = {experiment_name(Path(path)): Path(path) for path in paths}
    if not paths or len(experiments) < len(paths):
        names = ", ".join(paths) or "nothing"
        problem = "it takes YAML files of different names, such as those in experiments/"
        raise InputError([f"experiments: {problem}; got {names}"])
    folder = (
        SweepDir(options.output)
        if options.output
        else default_sweep_dir([*experiments], options.smoke)
    )
    points: tuple[Point, ...] = ((),)
    seeds: tuple[int, ...] = (0,)
    with collected(problems):
        points = read_grid(options.grid)
    with collected(problems):
        seeds = read_seeds(options.seeds)
    sweep = Sweep(
        folder=folder,
        experiments=experiments,
        points=points,
        seeds=seeds,
        overrides=tuple(word for word in words if word not in paths),
        is_smoke=options.smoke,
    )
    if options.launcher == "slurm":
        with collected(problems):
            # All runs of an array get the CPUs of the run that needs most.
            each = [with_cpus(sweep.options(run), resources) for run in sweep.runs]
            resources = max(each, key=lambda one: one.cpus_per_task)
    return sweep, resources, problems


def read_grid(texts: Sequence[str]) -> tuple[Point, ...]:
    """Read texts such as KEY=V1,V2, and return every combination of their values. Raises InputError."""
    problems, axes, seen = [], [], set()
    for text in texts:
        key, equals, rest = text.partition("=")
        values = [value.strip() for value in _split(rest)]
        if not equals or not key or not all(values):
            problems.append(f"--grid {text!r}: it takes KEY=VALUE,VALUE")
        elif key in seen:
            problems.append(f"--grid {text}: {key} appears twice")
        elif len({repr(from_text(value)) for value in values}) < len(values):
            problems.append(f"--grid {text}: a value appears twice")
        seen.add(key)
        axes.append([(key, value) for value in values])
    raise_problems(problems)
    return tuple(itertools.product(*axes))


def _split(text: str) -> list[str]:
    """Split a text at its commas, but not inside brackets: [0,3],[0,4] has two parts."""
    parts, depth = [""], 0
    for character in text:
        depth += BRACKETS.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def read_seeds(text: str) -> tuple[int, ...]:
    """Read seeds. "3" stands for 0, 1 and 2, and "3,5" for 3 and 5. Raises InputError for other texts."""
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    seeds = numbers if "," in text else [*range(min(sum(numbers), MAX_SEEDS + 1))]
    has_all = 1 <= len(seeds) <= MAX_SEEDS and len(set(seeds)) == len(seeds)
    if not has_all or min(seeds) < 0 or max(seeds) > MAX_INT:
        forms = f"a number of seeds, or the seeds, such as 0,5; at most {MAX_SEEDS:,}"
        raise InputError([f"--seeds {text}: it takes {forms}"])
    return tuple(seeds)


def preview(sweep: Sweep, as_json: bool) -> int:
    """Print each run, its state, and how many runs would be submitted. Write nothing."""
    found = states(sweep.folder, [run.name for run in sweep.runs])
    pairs = list(zip(sweep.runs, found, strict=True))
    if as_json:
        records = [
            {**entry(sweep, one, state), "would_submit": state.state not in IN_HAND}
            for one, state in pairs
        ]
        print(simplejson.dumps(records, indent=2))
        return 0
    rows = [[str(cell) for cell in entry(sweep, one, state).values()] for one, state in pairs]
    print(aligned([["row", "seed", "overrides", "run folder", "state"], *rows]))
    print(
        f"{sum(state.state not in IN_HAND for state in found)} of {len(found)} would be submitted"
    )
    return 0


def entry(sweep: Sweep, one: SweepRun, state: RunState) -> dict[str, str | int]:
    """Return one line of the preview, by the names of its cells."""
    return {
        "row": one.experiment,
        "seed": one.seed,
        "overrides": " ".join(f"{key} {value}" for key, value in one.point),
        "run_folder": str(sweep.folder.run(one.name).root),
        "state": state.state,
    }


def show(found: Sequence[RunState], as_json: bool) -> None:
    """Print the states as a table or as JSON."""
    if as_json:
        print(simplejson.dumps([asdict(one) for one in found], indent=2))
    else:
        print(aligned([COLUMNS, *(one.cells() for one in found)]))


if __name__ == "__main__":
    sys.exit(run_tool(main))
