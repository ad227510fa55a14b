#!/usr/bin/env python3
"""Measure a training step of a row alone, and beside a second training on the same cores; needs no videos.

    python benchmarks/two_at_once.py --cfg experiments/quickstart/baseline.yaml

The threads of a training wait for each other many times in a step. They first spin for GOMP_SPINCOUNT turns and
then sleep. A thread that spins takes the core from the thread of the other training. So this tool measures the
steps with several counts, and also with one thread for each training. Two trainings start each step at the same
time, and the step ends with the slower one. Close other programs first. Exit 0; 1 a step failed; 2 bad input.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median

import simplejson
import torch
from measuring import add_timing_options, timing_problems
from way_in_processes import WayInProcesses

from mgexp.config.keys import Config
from mgexp.config.load import experiment_name, read_config
from mgexp.errors import InputError, TrainingError
from mgexp.multigrid.schedule import Schedule, StepShape, base_shapes
from mgexp.options import ToolParser, too_small
from mgexp.plan.measure import build_checked_schedule
from mgexp.plan.timing import Stopwatch, measure_steps
from mgexp.plan.ways import build_training_step
from mgexp.run.environment import describe, num_cores
from mgexp.run.files import write_json
from mgexp.text import aligned

CPU = torch.device("cpu")
SPINS = (20_000, 3_000, 1_000, 300)
"""The counts that are compared. GNU's default, 300,000, is not among them: two trainings then hardly proceed."""


@dataclass(frozen=True)
class Setting:
    """How each training runs: the turns of a wait, and the number of threads."""

    spin: int
    num_threads: int


Seconds = Mapping[Setting, Mapping[StepShape, Mapping[int, list[float]]]]
"""The seconds of all timed steps, by setting, shape and number of trainings at once (1 or 2)."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    add_timing_options(parser)
    add = parser.add_argument
    add(
        "--spins", nargs="+", type=int, default=SPINS, metavar="N", help="GOMP_SPINCOUNT to compare"
    )
    add("--rounds", type=int, default=3, metavar="N", help="how often to measure all (default: 3)")
    return parser.parse_intermixed_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    try:
        cfg, schedule = read(options)
        seconds = bench(cfg, schedule, options)
    except InputError as error:
        print(f"two_at_once.py: {error}", file=sys.stderr)
        return 2
    except (TrainingError, RuntimeError) as error:
        print(f"two_at_once.py: a step failed: {error}", file=sys.stderr)
        return 1
    # Each setting has its own count and threads. Those of this process have no meaning.
    environment = {**describe(), "threads": None, "spin_count": None}
    row = experiment_name(options.cfg)
    found = {"row": row, "steps": to_json(seconds), "environment": environment}
    if options.output:
        write_json(options.output, found)
    print(simplejson.dumps(found, indent=2) if options.json else report(seconds))
    return 0


def read(options: argparse.Namespace) -> tuple[Config, Schedule]:
    """Check the options, read the configuration and build its schedule. Raises InputError with all problems."""
    found = too_small({"--rounds": options.rounds, "--spins": min(options.spins)})
    cfg, problems = read_config(options.cfg, [*options.overrides, "DEVICE", "cpu"])
    return cfg, build_checked_schedule(cfg, [*found, *timing_problems(options), *problems])


def bench(cfg: Config, schedule: Schedule, options: argparse.Namespace) -> Seconds:
    """Time the steps of each setting at the base shapes of the schedule, in several rounds.

    The settings take turns, so that a machine that slows down over time slows all of them.
    """
    settings = [Setting(spin, num_cores()) for spin in options.spins]
    settings.append(Setting(min(options.spins), 1))
    shapes, stopwatch, make = (
        base_shapes(schedule),
        Stopwatch(CPU),
        partial(build_training_step, cfg, CPU),
    )
    found: dict[Setting, dict[StepShape, dict[int, list[float]]]] = {
        one: {shape: defaultdict(list) for shape in shapes} for one in settings
    }
    for number in range(options.rounds):
        for setting in settings[:: -1 if number % 2 else 1]:
            # New processes inherit the variable, and their torch reads it.
            os.environ["GOMP_SPINCOUNT"] = str(setting.spin)
            ways = {
                str(count): WayInProcesses([make] * count, setting.num_threads) for count in (1, 2)
            }
            timed = measure_steps(ways, shapes, options.steps, options.warmup, stopwatch, True)
            for name, by_shape in timed.items():
                for shape, steps in by_shape.items():
                    found[setting][shape][int(name)] += steps.seconds
            # Processes that wait for their next step need memory, so only one setting has processes at a time.
            for way in ways.values():
                way.close()
    return found


def report(seconds: Seconds) -> str:
    """Write a table of median seconds for people."""
    shapes = [*next(iter(seconds.values()))]
    rows = [["spin", "threads", *(f"{shape}, alone / two at once" for shape in shapes)]]
    for setting, by_shape in seconds.items():
        cells = (" / ".join(f"{median(by_shape[s][n]):.3f}" for n in (1, 2)) for s in shapes)
        rows.append([str(setting.spin), str(setting.num_threads), *cells])
    return aligned(rows)


def to_json(seconds: Seconds) -> list[dict[str, object]]:
    """List everything that was measured, for JSON."""
    return [
        {
            "spin_count": setting.spin,
            "num_threads": setting.num_threads,
            "trainings": count,
            "clips": shape.clips,
            "frames": shape.frames,
            "crop": shape.crop,
            "seconds": values,
        }
        for setting, by_shape in seconds.items()
        for shape, by_count in by_shape.items()
        for count, values in by_count.items()
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
