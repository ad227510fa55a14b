#!/usr/bin/env python3
"""Predict how long the rows of an experiment train, and what limits them: compute, loading or communication.

    python tools/plan.py --cfg experiments/quickstart/baseline.yaml --output plan.json      measures for a minute
    python tools/plan.py --from plan.json --measured-run runs/quickstart/baseline/seed0     compares, afterwards
    python tools/plan.py --cfg ROW.yaml --num-gpus 8 64 --bandwidth 50 23 --latency 3.4 9.6 --gpus-per-node 6

Exit 0; 2 bad input; 4 stopped by Ctrl-C.

In detail:
Training steps of every shape are timed on random clips. Loading is timed on videos of DATA.TRAIN_LIST, or on those
of --make-videos. Without any it is unknown. mgexp/plan/predict.py holds the model of a step. Close other programs
first. For several GPUs, the tool times the mini-batches that one GPU gets with the first number in --num-gpus. It
computes the times with the other numbers from these.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

# mgexp comes before torch, because it sets how torch's threads wait.
import mgexp  # noqa: F401

# isort: split
import simplejson
import torch

from mgexp.config.check import cross_problems
from mgexp.config.load import experiment_name, read_config
from mgexp.dist import device_of, device_problems
from mgexp.errors import InputError, collected, raise_problems
from mgexp.options import (
    ToolParser,
    add_import_option,
    local_folder,
    not_positive,
    run_tool,
    say,
    too_small,
    without_folder,
)
from mgexp.plan.advice import advice
from mgexp.plan.communication import Communication, Link, Network
from mgexp.plan.measure import (
    Measurement,
    Row,
    build_cost_digest,
    build_row,
    measure_rows,
    measured_run,
    measurement_of,
    predict_rows,
)
from mgexp.plan.predict import RowPrediction
from mgexp.run.environment import describe
from mgexp.run.files import read_json, write_json
from mgexp.text import aligned, duration
from mgexp.train.precision import resolve_precision

# Code that is used only to measure is not a part of the package. It is in benchmarks/, beside its results.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from bench_videos import make_bench_videos

ROWS = ("baseline", "short", "long", "long_short")
PLAN_VERSION = 1
DEFAULTS = {
    "budget_seconds": 60.0,
    "gpus_per_node": 8,
    "bandwidth": (12.0, 12.5),
    "latency": (5.7, 9.6),
}
"""Values of options that --from may leave unread, so a check has to know whether they were given."""


# fmt: off
def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line. KEY VALUE pairs stay text, because the configuration knows their types."""
    parser = ToolParser(__doc__, "(--cfg YAML | --from FILE) [options] [KEY VALUE ...]")
    add = parser.add_argument
    add("--cfg", type=Path, help="YAML of a row, in experiments/")
    add_import_option(parser)
    add("--rows", nargs="+", type=Path, metavar="YAML", help=f"rows (default: {', '.join(ROWS)} beside --cfg)")
    add("--budget-seconds", type=float, metavar="S", help="time to measure (default: 60)")
    add("--make-videos", type=local_folder, metavar="FOLDER",
        help="first make eight videos (340 × 256 pixels, 30 fps, 10 s, H.264) and a store there, and time loading "
        "on them; the number of videos stays DATA.NUM_VIDEOS (later, with --from, add DATA.STORE FOLDER/store)")
    add("--from", dest="source", type=Path, metavar="FILE", help="the measurement of an earlier --output")
    add("--measured-run", nargs="+", type=Path, default=(), metavar="DIR", help="run folders to compare with")
    add("--output", type=Path, metavar="FILE", help="write measurement and predictions")
    add("--json", action="store_true", help="print them, for programs")
    add("overrides", nargs="*", metavar="KEY VALUE", help="configuration keys, for all rows")
    add_machine(parser.add_rare_group("the machine that is predicted"))
    return parser.parse_with_pairs(arguments)


def add_machine(group: argparse._ArgumentGroup) -> None:
    """Add the options that describe the machine and its network."""
    add = group.add_argument
    add("--num-gpus", nargs="+", type=int, metavar="N", help="processes (default: 1, or as measured)")
    add("--workers", type=int, metavar="W",
        help="workers of a process (default: DATA_LOADER.NUM_WORKERS; auto: as many as --cores)")
    add("--cores", type=int, metavar="C",
        help="cores of a process and its workers (default: those of the measured machine / the GPUs of a node)")
    add("--gpus-per-node", type=int, metavar="N", help="default: 8")
    add("--bandwidth", nargs=2, type=float, metavar=("INSIDE", "BETWEEN"),
        help="GB/s in one direction, between the GPUs of a node and of a node to others "
        "(default: 12 12.5, as PCIe 3.0 x16 in NCCL's topo.h, and 100 Gb/s)")
    add("--latency", nargs=2, type=float, metavar=("INSIDE", "BETWEEN"),
        help="microseconds of a message (default: 5.7 9.6, PCI and network in NCCL's tuning.cc)")
# fmt: on


def main(arguments: list[str]) -> int:
    """Measure, predict, compare and print."""
    options = parse(arguments)
    check(options)
    found, text = plan(options)
    if runs := [measured_run(folder, found["predictions"]) for folder in options.measured_run]:
        found["measured_runs"] = runs
        text = "\n\n".join(part for part in (text, run_table(runs)) if part)
    if options.output:
        write_json(options.output, found)
    print(simplejson.dumps(found, indent=2) if options.json else text)
    return 0


def check(options: argparse.Namespace) -> None:
    """Raise InputError for options that exclude each other, and for impossible numbers. Fill in DEFAULTS."""
    problems = []
    if not (options.cfg or options.rows or options.source):
        problems.append("give --cfg, --rows or --from")
    if options.cfg and options.rows:
        problems.append("--cfg is not read with --rows: leave one out")
    if options.make_videos and options.source:
        problems.append(
            "--make-videos makes videos to measure with, and --from measures nothing: leave one out"
        )
    if options.source and not (options.cfg or options.rows) and not options.measured_run:
        problems.append("--from alone has nothing to do: add --cfg, --rows or --measured-run")
    has_rows = options.cfg or options.rows
    given = {name: getattr(options, name) for name in ("num_gpus", "workers", "cores", *DEFAULTS)}
    unread = {f"--{name.replace('_', '-')}": value for name, value in given.items()}
    unread[" ".join(options.overrides)] = options.overrides or None
    if options.source and not has_rows:
        problems += [
            f"{name} is not read with --from without --cfg or --rows: leave it out, or add one of them"
            for name, value in unread.items()
            if value is not None
        ]
    elif options.source and options.budget_seconds is not None:
        problems.append(
            "--budget-seconds is not read with --from, which measures nothing: leave it out"
        )
    for name, value in DEFAULTS.items():
        if given[name] is None:
            setattr(options, name, value)
    problems += too_small({"--gpus-per-node": options.gpus_per_node, "--cores": options.cores})
    problems += too_small({"--num-gpus": min(options.num_gpus or [1])})
    problems += too_small({"--workers": options.workers}, least=0)
    problems += not_positive({"--budget-seconds": options.budget_seconds})
    problems += without_folder({"--output": options.output})
    # These are False for NaN too.
    bandwidths, latencies = options.bandwidth, options.latency
    if not (
        all(0 < x < math.inf for x in bandwidths) and all(0 <= x < math.inf for x in latencies)
    ):
        problems.append("--bandwidth needs numbers above 0, --latency 0 or more, and no infinity")
    raise_problems(problems)  # fmt: skip


def plan(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Return the plan for JSON and as text. Without rows, return the plan of the file in --from, and no text."""
    if options.source and not (options.cfg or options.rows):
        found = read_json(options.source)
        if not isinstance(found.get("predictions"), list):
            raise InputError(
                [f"{options.source} holds no predictions: give an --output of plan.py"]
            )
        return found, ""
    rows = read_rows(options)
    if options.source:
        measurement = measurement_of(read_json(options.source).get("measurement") or {})
        raise_problems(
            [
                f"{options.source} was measured with another network than that of {row.name}, or with other keys "
                "of steps or loading: measure again, or give the same keys"
                for row in rows
                if measurement.model not in {"", build_cost_digest(row.cfg)}
            ]
        )
    else:
        measurement = measure_rows(rows, options.budget_seconds, measured_gpus(options), say)
    predictions = predict_rows(
        rows,
        measurement,
        communication_of(measurement, options),
        options.num_gpus or (measurement.num_gpus,),
        options.workers,
        options.cores,
    )
    found = {
        "version": PLAN_VERSION,
        "measurement": measurement.to_json(),
        "network": {
            "bandwidth_gigabytes_per_second": list(options.bandwidth),
            "latency_microseconds": list(options.latency),
            "gpus_per_node": options.gpus_per_node,
        },
        "predictions": plan_json(predictions),
        "environment": describe(),
    }
    return found, report(predictions, measurement)


def measured_gpus(options: argparse.Namespace) -> int:
    """Return among how many GPUs the measured mini-batches are divided."""
    return options.num_gpus[0] if options.num_gpus else 1


def read_rows(options: argparse.Namespace) -> list[Row]:
    """Read --rows, or --cfg and the usual rows beside it. Raises InputError with all problems.

    Without --from, also check that this machine can measure them.
    """
    paths = options.rows
    if not paths:
        beside = [options.cfg.with_name(f"{name}.yaml") for name in ROWS]
        paths = [path for path in beside if path.is_file()]
        if options.cfg.resolve() not in [path.resolve() for path in paths]:
            paths.append(options.cfg)
    rows, problems = [], []
    for path in paths:
        cfg, found = read_config(path, options.overrides)
        found = [*found, *cross_problems(cfg)]
        if options.make_videos and not cfg.DATA.NUM_VIDEOS:
            found.append(
                f"{path}: --make-videos needs the number of training videos: add DATA.NUM_VIDEOS N"
            )
        if cfg.TRAIN.COMPILE != "off":
            found.append(
                f"{path}: TRAIN.COMPILE = {cfg.TRAIN.COMPILE}: the steps that are timed are not compiled, so they "
                "take longer; add TRAIN.COMPILE off to plan without it"
            )
        if not found:
            given = cfg.DATA.NUM_VIDEOS if options.make_videos else None
            with collected(found):
                row = build_row(cfg, experiment_name(path), given)
                rows.append(row)
                if not options.source:
                    row.schedule(measured_gpus(options), checks_model=True)
        if not options.source:
            found += device_problems(cfg.DEVICE, torch.cuda.device_count())
            with collected(found):
                resolve_precision(cfg.TRAIN.PRECISION, device_of(cfg.DEVICE))
        problems += found
    raise_problems(problems)
    if not options.make_videos:
        return rows
    # The rows are checked before the videos are made, which takes a while.
    pairs = [*options.overrides, *make_bench_videos(options.make_videos, progress=True).pairs()]
    read = [read_config(path, pairs) for path in paths]
    raise_problems([problem for _, found in read for problem in found])
    return [replace(row, cfg=cfg) for row, (cfg, _) in zip(rows, read, strict=True)]


def communication_of(measurement: Measurement, options: argparse.Namespace) -> Communication:
    """Return the all-reduce that the command line describes."""
    inside, between = (
        Link(latency / 1e6, bandwidth * 1e9)
        for latency, bandwidth in zip(options.latency, options.bandwidth, strict=True)
    )
    network = Network(inside, between, options.gpus_per_node)
    return Communication(measurement.gradient_bytes, network)


def report(predictions: Sequence[RowPrediction], measurement: Measurement) -> str:
    """Write all tables, and advice."""
    lines = [line for row in predictions for line in advice(row)]
    if measurement.loading is None:
        lines.append("loading is unknown: DATA.TRAIN_LIST names no videos that are here")
    if len(seconds := measurement.clip_seconds) > 1:
        key = simplejson.dumps(seconds, separators=(",", ":"))
        lines.append(
            "mini-batches whose steps take equally long here: MULTIGRID.BATCH_RATIO measured "
            f"MULTIGRID.CLIP_SECONDS '{key}'"
        )
    head = f"measured in {measurement.seconds:.0f} s on {measurement.device}, {measurement.num_cores} cores"
    parts = [f"{head}\n{row_table(predictions)}", *map(phase_table, predictions), "\n".join(lines)]
    return "\n\n".join(part for part in parts if part)


def row_table(rows: Sequence[RowPrediction]) -> str:
    """Write a line for each row and number of GPUs. The speed-up is over the first row on the same number."""
    head = ("row", "GPUs", "steps", "seconds", "training", "waiting", "times faster")
    # In the reverse order, the first row comes last and replaces the others.
    baseline = {row.num_gpus: row.seconds for row in reversed(rows)}
    lines = [
        (
            row.name,
            str(row.num_gpus),
            str(row.num_steps),
            f"{row.seconds:.1f}",
            duration(row.seconds),
            f"{row.waiting_seconds / row.seconds:.0%}",
            f"{baseline[row.num_gpus] / row.seconds:.2f}",
        )
        for row in rows
    ]
    return aligned([head, *lines])


def phase_table(row: RowPrediction) -> str:
    """Write a line for each cycle of shapes: the parts of a mean step in milliseconds, and what limits it."""
    head = ("mini-batches", "steps", "compute", "loading", "communication", "step", "binds")
    lines = []
    for leg in row.legs:
        balance = leg.balance
        # On a CPU, the workers get only the time that training leaves idle. So loading is never shorter there than
        # the step.
        is_known = balance.loading_core_seconds is not None
        lines.append(
            (
                str(leg),
                str(leg.leg.num_steps),
                f"{1000 * balance.compute:.1f}",
                f"{1000 * balance.loading:.1f}" if is_known else "unknown",
                f"{1000 * balance.communication:.1f}",
                f"{1000 * balance.wall:.1f}",
                balance.binds,
            )
        )
    title = f"{row}, milliseconds of a step (loading: of its clips, beside training)"
    return f"{title}\n{aligned([head, *lines])}"


def plan_json(rows: Sequence[RowPrediction]) -> list[dict[str, Any]]:
    """Return the predictions for JSON. All times are in seconds."""
    return [
        {
            "row": row.name,
            "num_gpus": row.num_gpus,
            "steps": row.num_steps,
            "train_seconds": row.seconds,
            "input_wait_seconds": row.waiting_seconds,
            "first_use_seconds": row.first_use_seconds,
            "start_seconds": row.start_seconds,
            "legs": [
                {
                    "mini_batches": [str(shape) for shape in leg.shapes],
                    "steps": leg.leg.num_steps,
                    "compute": leg.balance.compute,
                    "compute_core_seconds": leg.balance.compute_core_seconds,
                    "loading_core_seconds": leg.balance.loading_core_seconds,
                    "loading": leg.balance.loading,
                    "communication": leg.balance.communication,
                    "exposed_communication": leg.balance.exposed,
                    "step": leg.balance.wall,
                    "binds": leg.balance.binds,
                }
                for leg in row.legs
            ],
        }
        for row in rows
    ]


def run_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Write a line for each finished run, with its prediction and its measurement."""
    head = ("measured run", "predicted s", "measured s", "ratio", "predicted wait", "measured wait")
    lines = [
        (
            run["row"],
            f"{run['predicted_train_seconds']:.1f}",
            f"{run['measured_train_seconds']:.1f}",
            f"{run['ratio']:.3f}",
            f"{run['predicted_input_wait_seconds']:.1f}",
            f"{run['measured_input_wait_seconds']:.1f}",
        )
        for run in runs
    ]
    return aligned([head, *lines])


if __name__ == "__main__":
    sys.exit(run_tool(main))
