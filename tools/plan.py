#!/usr/bin/env python3
"""Predict how long the rows of an experiment train here, and whether loading keeps up.

    python tools/plan.py --cfg experiments/quickstart/baseline.yaml     the rows beside it too
    python tools/plan.py --rows ROW.yaml OTHER.yaml [KEY VALUE ...]

The tool times steps of every shape on random clips, and the loading of some videos of DATA.TRAIN_LIST. Without
videos, loading is unknown. The time of a row is its steps times these seconds (mgexp/plan/predict.py).
With --num-gpus N, the mini-batches are those of one of N processes, which share the cores of this machine; the
messages between them are not in the model. Close other programs first. Exit 0; 2 bad input; 4 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import simplejson

from mgexp.config.keys import Config
from mgexp.config.load import experiment_name
from mgexp.errors import InputError, raise_problems
from mgexp.multigrid.schedule import Schedule
from mgexp.options import ToolParser, add_import_option, run_tool, say, too_small, without_folder
from mgexp.plan.measure import Measurement, build_measurement, build_row_here
from mgexp.plan.predict import RowPrediction, build_resources, predict
from mgexp.run.environment import describe
from mgexp.run.files import write_json
from mgexp.text import aligned, duration

ROWS = ("baseline", "short", "long", "long_short")
PLAN_VERSION = 2


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__, "(--cfg YAML | --rows YAML ...) [options] [KEY VALUE ...]")
    add = parser.add_argument
    rows = parser.add_mutually_exclusive_group(required=True)
    rows.add_argument("--cfg", type=Path, help="YAML of a row, in experiments/")
    text = f"rows (default: {', '.join(ROWS)} beside --cfg)"
    rows.add_argument("--rows", nargs="+", type=Path, metavar="YAML", help=text)
    add_import_option(parser)
    add("--num-gpus", type=int, default=1, metavar="N", help="processes (default: 1)")
    add("--steps", type=int, default=5, metavar="N", help="timed steps of a shape (default: 5)")
    add("--output", type=Path, metavar="FILE", help="write the numbers as JSON")
    add("--json", action="store_true", help="print them, for programs")
    add("overrides", nargs="*", metavar="KEY VALUE", help="configuration keys, for all rows")
    return parser.parse_with_pairs(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    measured, predictions = {}, {}
    for name, (cfg, schedule) in read_rows(options).items():
        say(f"measuring {name}")
        measured[name] = build_measurement(cfg, schedule, options.steps)
        steps, clips = measured[name].steps, measured[name].clips
        resources = build_resources(cfg, options.num_gpus)
        predictions[name] = predict(schedule, steps, clips, resources, options.num_gpus)
    plan = {
        "version": PLAN_VERSION,
        "num_gpus": options.num_gpus,
        "rows": [row_json(name, predictions[name], measured[name]) for name in predictions],
        "environment": describe(),
    }
    if options.output:
        write_json(options.output, plan)
    print(simplejson.dumps(plan, indent=2) if options.json else report(predictions, measured))
    return 0


def read_rows(options: argparse.Namespace) -> dict[str, tuple[Config, Schedule]]:
    """Read --rows, or --cfg and the usual rows beside it, by name. Raises InputError with all problems."""
    raise_problems(
        [
            *too_small({"--num-gpus": options.num_gpus, "--steps": options.steps}),
            *without_folder({"--output": options.output}),
        ]
    )
    paths = options.rows
    if not paths:
        beside = [options.cfg.with_name(f"{name}.yaml") for name in ROWS]
        paths = [path for path in beside if path.is_file()]
        if options.cfg.resolve() not in [path.resolve() for path in paths]:
            paths.append(options.cfg)
    rows, problems = {}, []
    for path in paths:
        try:
            row = build_row_here(path, options.overrides, options.num_gpus)
            if row[0].TRAIN.COMPILE != "off":
                raise InputError(
                    ["the steps that are timed are not compiled: add TRAIN.COMPILE off"]
                )
            rows[experiment_name(path)] = row
        except InputError as error:
            problems += [f"{path}: {problem}" for problem in error.problems]
    raise_problems(problems)
    return rows


def report(rows: Mapping[str, RowPrediction], measured: Mapping[str, Measurement]) -> str:
    """Write all tables, and the keys for mini-batches whose steps take equally long."""
    parts = [row_table(rows), *(phase_table(name, row) for name, row in rows.items())]
    if any(measurement.clips is None for measurement in measured.values()):
        parts.append("loading is unknown: DATA.TRAIN_LIST names no videos that are here")
    seconds = max((row.clip_seconds for row in measured.values()), key=len)
    if len(seconds) > 1:
        key = simplejson.dumps(seconds, separators=(",", ":"))
        parts.append(
            "mini-batches whose steps take equally long here: MULTIGRID.BATCH_RATIO measured "
            f"MULTIGRID.CLIP_SECONDS '{key}'"
        )
    return "\n\n".join(parts)


def row_table(rows: Mapping[str, RowPrediction]) -> str:
    """Write a line for each row. The speed-up is over the first row."""
    head = ("row", "steps", "seconds", "training", "waiting", "times faster")
    first = next(iter(rows.values()))
    lines = [
        (
            name,
            str(row.num_steps),
            f"{row.seconds:.1f}",
            duration(row.seconds),
            f"{row.waiting_seconds / row.seconds:.0%}",
            f"{first.seconds / row.seconds:.2f}",
        )
        for name, row in rows.items()
    ]
    return aligned([head, *lines])


def phase_table(name: str, row: RowPrediction) -> str:
    """Write a line for each cycle of shapes: a mean step in milliseconds, and the cores that loading needs."""
    head = ("mini-batches", "steps", "compute", "step", "cores needed")
    lines = [
        (
            " ".join(map(str, phase.shapes)),
            str(phase.num_steps),
            f"{1000 * phase.compute:.1f}",
            f"{1000 * phase.seconds:.1f}",
            "unknown" if phase.cores_needed is None else f"{phase.cores_needed:.1f}",
        )
        for phase in row.phases
    ]
    workers, cores = row.resources.num_workers, row.resources.num_cores
    title = f"{name}, milliseconds of a step ({workers} workers, {cores} cores)"
    return f"{title}\n{aligned([head, *lines])}"


def row_json(name: str, row: RowPrediction, measurement: Measurement) -> dict[str, Any]:
    """Return the measurement and the prediction of a row for JSON. All times are in seconds."""
    return {
        "row": name,
        "steps": row.num_steps,
        "train_seconds": row.seconds,
        "input_wait_seconds": row.waiting_seconds,
        "first_use_seconds": row.first_use_seconds,
        "phases": [
            {
                "mini_batches": [str(shape) for shape in phase.shapes],
                "steps": phase.num_steps,
                "compute": phase.compute,
                "loading_core_seconds": phase.loading_core_seconds,
                "step": phase.seconds,
            }
            for phase in row.phases
        ],
        "shapes": [
            {**asdict(shape), "seconds": timed.median, "first_use_seconds": timed.first_use_seconds}
            for shape, timed in measurement.steps.items()
        ],
        "clip_seconds": measurement.clip_seconds,
    }


if __name__ == "__main__":
    sys.exit(run_tool(main))
