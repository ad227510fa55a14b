"""Say of a row what tools/doctor.py reports: its precision, its number of steps, and whether they are enough.

With a trained baseline, it compares the steps of the row with those after which the baseline has begun to
learn. Its limit was fitted on four differences of the map of experiments/length, which has the rule's score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from mgexp.config.keys import Config
from mgexp.dist import device_of
from mgexp.errors import InputError, TrainingError
from mgexp.multigrid.schedule import Schedule, step_counts
from mgexp.plan.doctor import Finding
from mgexp.plan.ways import build_training_step
from mgexp.run.files import read_jsonl
from mgexp.text import counted
from mgexp.train.precision import resolve_precision
from mgexp.train.precision_check import check_precision
from mgexp.train.predict import load_run

FEW_STEPS = 700
"""A training at several shapes with fewer steps gets a warning. Measured with one seed of the quickstart, at a
fixed stride: multigrid rows of 702 to 904 steps lost 1.1 points or less, those of 602 or fewer 4.6 or more. One
shape may do with fewer: ``lars_8x`` of experiments/large_batch has 188, and is as accurate as its baseline with
three seeds. More are no guarantee: ``long_short`` of the quickstart has 710, and lost 5.5 points with 26 seeds."""
FEW_TAKEOFFS = 5.0
"""A row that takes fewer steps than this many times the baseline's take-off is likely to lose."""
SMOOTHED_LINES = 10
"""Lines of metrics.jsonl whose losses are averaged before they are compared."""

Losses = Sequence[tuple[int, float]]
"""(step, training loss) of each logged step, in order."""


def build_precision_findings(cfg: Config, schedule: Schedule) -> list[Finding]:
    """Compare TRAIN.PRECISION with fp32 at every shape on this machine. Return a finding for each wrong shape."""
    device = device_of(cfg.DEVICE)
    precision = resolve_precision(cfg.TRAIN.PRECISION, device)
    if precision.name == "fp32":
        return [Finding("precision", "OK", f"{precision.name}: nothing to check")]
    step = build_training_step(cfg, device).step
    parts = step.part_shapes(step_counts(schedule))
    try:
        faults = check_precision(step.model, parts, step.normalizer, precision)
    except TrainingError as error:
        return [Finding("precision", "problem", str(error))]
    agrees = Finding("precision", "OK", f"{precision.name}: agrees with fp32 at every shape")
    return [Finding("precision", "problem", fault) for fault in faults] or [agrees]


def has_few_steps(schedule: Schedule) -> bool:
    """Return whether a schedule of several shapes has fewer steps than FEW_STEPS."""
    return len(schedule.sizes) > 1 and schedule.total_steps < FEW_STEPS


def steps_finding(schedule: Schedule) -> Finding:
    """Report whether training has enough steps to learn, and the steps of its shortest phase."""
    fewest = min(phase.num_steps for phase in schedule.phases)
    text = (
        f"{schedule.total_steps:,} for {counted(schedule.num_videos, 'video')}, "
        f"{counted(len(schedule.phases), 'phase')} of {fewest:,} or more; "
        f"the baseline has {schedule.baseline_steps:,}"
    )
    if not has_few_steps(schedule):
        return Finding("number of steps", "OK", text)
    remedy = "raise SOLVER.MAX_EPOCH and SOLVER.STEPS, or train the baseline"
    return Finding("number of steps", "warning", f"few: {text}", remedy)


def read_losses(run: Path) -> Losses:
    """Read the losses of a baseline. Raises InputError if ``run`` is no run, or has several shapes."""
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


def takeoff_finding(row_steps: int, takeoff: int) -> Finding:
    ratio = row_steps / takeoff
    half = f"the {takeoff:,} of half of the fall of the baseline's loss"
    text = f"the row takes {row_steps:,} steps, {ratio:.1f} times {half}"
    values = {"steps": float(row_steps), "takeoff": float(takeoff)}
    if ratio >= FEW_TAKEOFFS:
        return Finding("multigrid: length", "OK", text, values=values)
    remedy = f"fewer than {FEW_TAKEOFFS:g} times: train the baseline, or raise SOLVER.MAX_EPOCH"
    return Finding("multigrid: length", "warning", text, remedy, values)
