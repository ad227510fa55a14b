"""Predictions as people and programs read them, with advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mgexp.plan.loading import Kind
from mgexp.plan.prediction import LOADING, Balance, LegPrediction, RowPrediction
from mgexp.record.text_table import aligned

UNKNOWN = "unknown"


def duration(seconds: float) -> str:
    """In the unit that people would say: 12.3 s, 14 min 13 s, 49 h 55 min."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes:02d} min"


def row_table(rows: Sequence[RowPrediction]) -> str:
    """A line per row and number of GPUs; the speed-up is over the first row on as many GPUs."""
    head = ("row", "GPUs", "steps", "seconds", "training", "waiting", "times faster")
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
    """A line per cycle of shapes: milliseconds of a mean step by what they go into, and what binds."""
    head = ("mini-batches", "steps", "compute", "loading", "communication", "step", "binds")
    lines = [
        (
            shapes_text(leg),
            str(leg.leg.num_steps),
            _ms(leg.balance.compute),
            UNKNOWN if leg.balance.loading_core_seconds is None else _ms(leg.balance.loading),
            _ms(leg.balance.communication),
            _ms(leg.balance.wall),
            leg.balance.binds,
        )
        for leg in row.legs
    ]
    # On a CPU workers get what training leaves of the cores: clips take no less than the step.
    title = f"{row.name} on {_gpus(row.num_gpus)}, milliseconds of a step (loading: of its clips, beside training)"
    return f"{title}\n{aligned([head, *lines])}"


def shapes_text(leg: LegPrediction) -> str:
    """Such as 128x4x32² 64x4x45²."""
    return " ".join(map(str, leg.shapes))


def advice(row: RowPrediction, stores: Mapping[str, Mapping[Kind, float]]) -> list[str]:
    """A line per cycle that waits for loading, or whose batch norm spans processes; ``stores``: other loading."""
    lines = []
    for leg in row.legs:
        where = f"{row.name} on {_gpus(row.num_gpus)}, {shapes_text(leg)}"
        if leg.spans_processes:
            lines.append(
                f"{where}: fewer clips per GPU than a group of batch norm; the messages of that are not counted"
            )
        if leg.balance.binds == LOADING:
            lines.append(f"{where}: waits for loading; {remedy(leg, stores, row.num_gpus)}")
        elif leg.balance.waiting > 0.01 * leg.balance.wall:
            share = leg.balance.waiting / leg.balance.wall
            lines.append(
                f"{where}: {share:.0%} waiting, {leg.balance.binds} binds; {remedy(leg, stores, row.num_gpus)}"
            )
    return lines


def remedy(leg: LegPrediction, stores: Mapping[str, Mapping[Kind, float]], num_gpus: int) -> str:
    """How many workers of a process would end the waiting, or how many cores, and which store."""
    workers = leg.balance.workers_to_unbind()
    now = leg.balance.resources
    if workers is not None:
        found = [f"{workers} workers for each process (now {now.num_workers})"]
    else:
        cores = leg.balance.cores_to_unbind()
        found = [f"{cores} cores for each process (now {now.num_cores}), with as many workers"]
    found += [name for name, seconds in stores.items() if not _waits(leg, seconds, num_gpus)]
    return " or ".join(found) + " would end that"


def plan_json(rows: Sequence[RowPrediction]) -> list[dict[str, Any]]:
    """The predictions for programs; all times in seconds."""
    return [
        {
            "row": row.name,
            "num_gpus": row.num_gpus,
            "steps": row.num_steps,
            "train_seconds": row.seconds,
            "input_wait_seconds": row.waiting_seconds,
            "first_use_seconds": row.first_use_seconds,
            "start_seconds": row.start_seconds,
            "legs": [_leg_json(leg) for leg in row.legs],
        }
        for row in rows
    ]


def _leg_json(leg: LegPrediction) -> dict[str, Any]:
    balance: Balance = leg.balance
    return {
        "mini_batches": [str(shape) for shape in leg.shapes],
        "steps": leg.leg.num_steps,
        "compute": balance.compute,
        "compute_core_seconds": balance.compute_core_seconds,
        "loading_core_seconds": balance.loading_core_seconds,
        "loading": balance.loading,
        "communication": balance.communication,
        "exposed_communication": balance.exposed,
        "step": balance.wall,
        "binds": balance.binds,
    }


def _waits(leg: LegPrediction, seconds: Mapping[Kind, float], num_gpus: int) -> bool:
    loading = leg.leg.core_seconds_per_step(seconds) / num_gpus
    return replace(leg.balance, loading_core_seconds=loading).waiting > 1e-9


def _gpus(num: int) -> str:
    return "1 process" if num == 1 else f"{num:,} GPUs"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"
