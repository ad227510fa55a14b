#!/usr/bin/env python3
"""Measure how much faster several processes train a row than one, on this machine's CPU; needs no videos.

    python tools/bench_processes.py --cfg ROW.yaml

Three teams train on the same global mini-batches of random clips and take steps in turns: one process of one
thread; N processes of one thread each, which communicate over gloo; one process of N threads. The efficiency is
the seconds of one core, divided by the seconds of the team times its cores: 1 where nothing is lost. Loading is
not measured. Close other programs first. Exit 0; 1 a step failed; 2 bad input; 4 stopped
by Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import simplejson

from mgexp.config.keys import Config
from mgexp.config.load import experiment_name, read_config
from mgexp.errors import InputError, TrainingError
from mgexp.multigrid.schedule import Schedule, base_shapes
from mgexp.options import ToolParser, add_timing_options, run_tool, timing_problems, too_small
from mgexp.plan.measure import build_shapes
from mgexp.plan.timing import Stopwatch, measure_steps
from mgexp.run.environment import describe, num_cores
from mgexp.run.files import write_json

# Code that is used only to measure is not a part of the package. It is in benchmarks/, beside its results.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from teams import CPU, Team, TeamTimes, build_team


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line. KEY VALUE pairs stay text, because the configuration knows their types."""
    parser = ToolParser(__doc__, "--cfg YAML [options] [KEY VALUE ...]")
    add_timing_options(parser)
    parser.add_argument(
        "--processes", type=int, default=2, metavar="N", help="processes of the team (default: 2)"
    )
    return parser.parse_intermixed_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure and print."""
    options = parse(arguments)
    try:
        cfg, schedule = read(options)
        times = bench(cfg, schedule, options)
    except InputError as error:
        print(f"bench_processes.py: {error}", file=sys.stderr)
        return 2
    except (TrainingError, RuntimeError) as error:
        print(f"bench_processes.py: a step failed: {error}", file=sys.stderr)
        return 1
    # Each team has its own number of threads. The number of this process has no meaning.
    environment = {**describe(), "threads": None}
    found = {"row": experiment_name(options.cfg), **times.to_json(), "environment": environment}
    if options.output:
        write_json(options.output, found)
    machine = f"{environment['cpu']}, {environment['cores']} cores, torch {environment['torch']}"
    print(simplejson.dumps(found, indent=2) if options.json else f"{times.report()}\n{machine}")
    return 0


def read(options: argparse.Namespace) -> tuple[Config, Schedule]:
    """Check the options, read the configuration and build its schedule for ``--processes``.

    Raises InputError with all problems.
    """
    found = [*too_small({"--processes": options.processes}, least=2), *timing_problems(options)]
    if options.processes > num_cores():
        found.append(f"--processes {options.processes}: this machine has {num_cores()} cores")
    # The last pair wins, so the teams train on the CPU even if the row asks for a GPU.
    cfg, problems = read_config(options.cfg, [*options.overrides, "DEVICE", "cpu"])
    return cfg, build_shapes(cfg, [*found, *problems], max(1, options.processes))


def bench(cfg: Config, schedule: Schedule, options: argparse.Namespace) -> TeamTimes:
    """Measure every team at the base shapes of the schedule."""
    count = options.processes
    teams = {str(team): team for team in (Team(1, 1), Team(count, 1), Team(1, count))}
    ways = {name: build_team(cfg, team) for name, team in teams.items()}
    stopwatch, shapes = Stopwatch(CPU), base_shapes(schedule)
    timed = measure_steps(ways, shapes, options.steps, options.warmup, stopwatch, progress=True)
    return TeamTimes({teams[name]: found for name, found in timed.items()})


if __name__ == "__main__":
    sys.exit(run_tool(main))
