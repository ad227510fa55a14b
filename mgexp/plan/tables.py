"""Predictions and costs of loading, as tables for people and JSON for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from mgexp.plan.loading import Leg, LoadingCosts
from mgexp.plan.measure import MeasuredRun
from mgexp.plan.predict import RowPrediction
from mgexp.text import aligned

UNKNOWN = "unknown"


def duration(seconds: float) -> str:
    """Write seconds in a readable unit: 12.3 s, 14 min 13 s, 49 h 55 min."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes:02d} min"


def spread(values: Sequence[float], decimals: int = 2) -> str:
    """Write median, minimum and maximum: 2.00 (1.50–2.50)."""
    texts = [f"{value:.{decimals}f}" for value in (median(values), min(values), max(values))]
    return f"{texts[0]} ({texts[1]}–{texts[2]})"


def row_table(rows: Sequence[RowPrediction]) -> str:
    """Write a line per row and number of GPUs. The speed-up is over the first row on the same number of GPUs."""
    head = ("row", "GPUs", "steps", "seconds", "training", "waiting", "times faster")
    baseline = {
        row.num_gpus: row.seconds for row in reversed(rows)
    }  # the first row is written last
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
    """Write a line per cycle of shapes: the parts of a mean step in milliseconds, and the part that limits it."""
    head = ("mini-batches", "steps", "compute", "loading", "communication", "step", "binds")
    lines = []
    for leg in row.legs:
        balance = leg.balance
        # On a CPU workers get the time that training leaves idle, so there loading is never shorter than the step.
        is_known = balance.loading_core_seconds is not None
        lines.append(
            (
                str(leg),
                str(leg.leg.num_steps),
                f"{1000 * balance.compute:.1f}",
                f"{1000 * balance.loading:.1f}" if is_known else UNKNOWN,
                f"{1000 * balance.communication:.1f}",
                f"{1000 * balance.wall:.1f}",
                balance.binds,
            )
        )
    title = f"{row}, milliseconds of a step (loading: of its clips, beside training)"
    return f"{title}\n{aligned([head, *lines])}"


def plan_json(rows: Sequence[RowPrediction]) -> list[dict[str, Any]]:
    """Return the predictions for JSON; all times are in seconds."""
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


def run_table(runs: Sequence[MeasuredRun]) -> str:
    """Write a line per finished run: its prediction and its measurement."""
    head = ("measured run", "predicted s", "measured s", "ratio", "predicted wait", "measured wait")
    lines = [
        (
            run.name,
            f"{run.predicted['train_seconds']:.1f}",
            f"{run.train_seconds:.1f}",
            f"{run.ratio:.3f}",
            f"{run.predicted['input_wait_seconds']:.1f}",
            f"{run.input_wait_seconds:.1f}",
        )
        for run in runs
    ]
    return aligned([head, *lines])


def clip_table(costs: LoadingCosts) -> str:
    """Write a line per leg: its shapes, and milliseconds per clip in each way to load."""
    return leg_table(
        costs, "ms per clip", lambda leg, seconds: f"{1000 * seconds / leg.clips_per_step:.2f}"
    )


def leg_table(costs: LoadingCosts, title: str, cell: Callable[[Leg, float], str]) -> str:
    """Write ``title``, and a line per leg with a cell for each way to load.

    ``cell``: from the leg and its core seconds of a step.
    """
    head = ("frames", "crops", "stride", "steps", "clips/step", *costs.ways)
    steps = [costs.per_step(way) for way in costs.ways]
    rows = []
    for index, leg in enumerate(costs.legs):
        low, high = leg.stride_range or (0, 0)
        stride = str(low) if low == high else f"{low}–{high}"
        rows.append(
            (
                str(leg.cycle.base.frames),
                " ".join(str(shape.crop) for shape in leg.cycle.shapes),
                "segments" if leg.stride_range is None else stride,
                str(leg.num_steps),
                f"{leg.clips_per_step:.1f}",
                *(cell(leg, seconds[index]) for seconds in steps),
            )
        )
    return f"{title}\n{aligned([head, *rows])}"


def way_table(costs: LoadingCosts) -> str:
    """Write a line per way to load: its cost over the whole schedule."""
    head = ("", "ms per clip", "clips/s per core", "times less", "dearest / cheapest step", "hours")
    rows = [
        (
            way,
            spread(costs.ms_per_clip(way)),
            f"{1000 / median(costs.ms_per_clip(way)):.0f}",
            spread(costs.times_less(way), 1),
            f"{costs.unevenness(way):.2f}",
            f"{costs.core_hours(way):.2f}",
        )
        for way in costs.ways
    ]
    return aligned([head, *rows])
