"""Say from a trained baseline whether a multigrid row is likely to be as accurate, for tools/doctor.py.

It compares the steps of the row with those after which the baseline has begun to learn. The limit was fitted on
four differences of the map of experiments/length, which says how often it was right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from mgexp.errors import InputError
from mgexp.plan.doctor import Finding
from mgexp.run.files import read_jsonl
from mgexp.train.predict import load_run

FEW_TAKEOFFS = 5.0
"""A row that takes fewer steps than this many times the baseline's take-off is likely to lose."""
SMOOTHED_LINES = 10
"""Lines of metrics.jsonl whose losses are averaged before they are compared."""


Losses = Sequence[tuple[int, float]]
"""(step, training loss) of each logged step, in order."""


def read_losses(run: Path) -> Losses:
    """Read those of a baseline. Raises InputError if ``run`` is no run, or has several shapes."""
    run_dir, _ = load_run(run)
    lines = [*read_jsonl(run_dir.metrics_jsonl)]
    if len({(line["frames"], line["crop"]) for line in lines}) != 1:
        raise InputError([f"--run {run}: it was trained at several shapes"])
    return [(int(line["step"]) + 1, float(line["loss"])) for line in lines]


def takeoff_step(losses: Losses) -> int:
    """Return the step after which the smoothed training loss has made half of its whole fall."""
    width = min(SMOOTHED_LINES, len(losses))
    smoothed = [
        (losses[end - 1][0], math.fsum(loss for _, loss in losses[end - width : end]) / width)
        for end in range(width, len(losses) + 1)
    ]
    half = (smoothed[0][1] + smoothed[-1][1]) / 2
    return next(step for step, loss in smoothed if loss <= half)


def steps_finding(row_steps: int, takeoff: int) -> Finding:
    ratio = row_steps / takeoff
    half = f"the {takeoff:,} of half of the fall of the baseline's loss"
    text = f"the row takes {row_steps:,} steps, {ratio:.1f} times {half}"
    values = {"steps": float(row_steps), "takeoff": float(takeoff)}
    if ratio >= FEW_TAKEOFFS:
        return Finding("multigrid: length", "OK", text, values=values)
    remedy = f"fewer than {FEW_TAKEOFFS:g} times: train the baseline, or raise SOLVER.MAX_EPOCH"
    return Finding("multigrid: length", "warning", text, remedy, values)
