"""Whether multigrid pays for a row on this machine, and what is in the way: compute, loading or precision."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from mgexp.multigrid.batchnorm import set_num_groups
from mgexp.multigrid.schedule import StepShape
from mgexp.plan.doctor import Finding
from mgexp.plan.loading import Kind, Leg
from mgexp.plan.machine import synchronizer
from mgexp.train.precision import Precision
from mgexp.train.precision_check import ShapeCheck, copy_to_check, draw_batch
from mgexp.train.step import Normalizer
from mgexp.train.task import Task

UNEVEN = 1.5
"""Steps cost equal FLOPs; beyond this ratio a shape computes badly. Assumption."""
NUM_REPEATS = 3
PAYS = 1.2
"""A speed-up below this is hardly worth it. Assumption."""


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step of ``shape``, measured with ``num_clips`` clips of it and scaled to all."""

    shape: StepShape
    num_clips: int
    seconds: float


def time_steps(
    model: nn.Module,
    shapes: Sequence[StepShape],
    task: Task,
    normalizer: Normalizer,
    precision: Precision,
    budget_seconds: float = 20.0,
) -> list[StepTime]:
    """Forward and backward at each shape, the fastest of three after a first; fewer shapes where the budget is
    used up.

    On a GPU with all clips, on a CPU with so many that the finest shape has two: time goes with clips there.
    The budget is looked at between shapes.
    """
    clone = copy_to_check(model)
    found: list[StepTime] = []
    start = time.perf_counter()
    divisor = max(1, min(shape.clips for shape in shapes) // 2)
    divisor = 1 if normalizer.device.type == "cuda" else divisor
    for shape in {(one.frames, one.crop): one for one in shapes}.values():
        if found and time.perf_counter() - start > budget_seconds:
            break
        clips = max(2, shape.clips // divisor)
        seconds = _time_step(
            clone, replace(shape, clips=clips, num_bn_groups=1), task, normalizer, precision
        )
        found.append(StepTime(shape, clips, seconds * shape.clips / clips))
    return found


def _time_step(
    model: nn.Module, shape: StepShape, task: Task, normalizer: Normalizer, precision: Precision
) -> float:
    sample, device = draw_batch(shape, task), normalizer.device
    clips, labels = normalizer(sample.clips), sample.labels.to(device)
    wait = synchronizer(device)
    set_num_groups(model, 1)
    seconds: list[float] = []
    with precision.backends():
        for _ in range(1 + NUM_REPEATS):
            wait()
            start = time.perf_counter()
            with precision.autocast(device):
                loss = task.loss(model(clips), labels)
            model.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            wait()
            seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


def precision_findings(precision: Precision, found: Iterable[ShapeCheck]) -> list[Finding]:
    """The check of every shape."""
    if precision.is_exact:
        return [Finding("precision", "OK", "fp32: nothing to check")]
    checks = list(found)
    problems = [problem for one in checks if (problem := one.problem(precision))]
    if problems:
        remedy = "TRAIN.PRECISION fp32"
        return [Finding("precision", "problem", problem, remedy) for problem in problems]
    worst = min(one.min_cosine for one in checks)
    text = f"{precision.name} agrees with fp32 at {len(checks)} shapes (worst cosine {worst:.6f})"
    return [Finding("precision", "OK", text)]


def evenness_finding(times: Sequence[StepTime], num_shapes: int) -> Finding:
    """Whether a step of every shape costs about the same."""
    fastest, slowest = (choose(times, key=lambda one: one.seconds) for choose in (min, max))
    ratio = slowest.seconds / fastest.seconds
    text = (
        f"slowest to fastest {ratio:.2f} ({slowest.shape}: {slowest.seconds:.3g} s, "
        f"{fastest.shape}: {fastest.seconds:.3g} s)"
    )
    if len(times) < num_shapes:
        text += f"; only {len(times)} of {num_shapes} shapes were measured in the time"
    if ratio > UNEVEN:
        remedy = (
            f"steps of equal FLOPs should take equal time: {slowest.shape} computes badly here; "
            "close other programs, raise TRAIN.BATCH_SIZE, or leave its crop or frames out of MULTIGRID"
        )
        return Finding("steps of all shapes", "warning", text, remedy)
    return Finding("steps of all shapes", "OK", text)


def compute_speedup(
    times: Sequence[StepTime], counts: Mapping[StepShape, int], baseline_steps: int
) -> float | None:
    """Of the row over its baseline where nothing waits for clips; None where a shape was not measured."""
    seconds = {(one.shape.frames, one.shape.crop): one.seconds for one in times}
    if any((shape.frames, shape.crop) not in seconds for shape in counts):
        return None
    full = max(counts, key=lambda shape: shape.frames * shape.crop**2)
    total = sum(num * seconds[shape.frames, shape.crop] for shape, num in counts.items())
    return baseline_steps * seconds[full.frames, full.crop] / total


def speedup_finding(speedup: float | None, num_shapes: int) -> Finding:
    """Whether multigrid pays as far as computing goes."""
    name = "does multigrid pay"
    if num_shapes == 1:
        return Finding(name, "OK", "this row has one shape: it is a baseline")
    if speedup is None:
        remedy = "run it where a step is faster"
        return Finding(name, "warning", "steps are too slow here to measure every shape", remedy)
    text = f"computing is {speedup:.2f} times as fast as the baseline's"
    if speedup < PAYS:
        return Finding(name, "warning", f"hardly: {text}", "see the line on steps of all shapes")
    return Finding(name, "OK", f"yes: {text}, if loading keeps up")


def loading_finding(
    legs: Sequence[Leg],
    seconds: Mapping[Kind, float],
    step_seconds: float,
    num_workers: int,
    num_cores: int,
    has_store: bool,
) -> Finding:
    """Whether the loaders keep up: core-seconds of a step's clips against the seconds of a step.

    ``seconds``: of one core, per clip of each kind. ``step_seconds``: of a mean step. One process for all clips.
    """
    needed = max(leg.core_seconds_per_step(seconds) for leg in legs)
    cores = needed / step_seconds
    text = (
        f"the dearest phase needs {needed:.3g} core-seconds of loading per step of {step_seconds:.3g} s: "
        f"{cores:.1f} cores; there are {num_workers} workers on {num_cores} cores"
    )
    if cores <= min(max(1, num_workers), num_cores):
        return Finding("loading", "OK", f"keeps up: {text}")
    store = "" if has_store else "make a clip store (tools/prepare_data.py) and set DATA.STORE; "
    more = f"set DATA_LOADER.NUM_WORKERS to {min(num_cores, int(cores) + 1)}"
    if num_workers >= num_cores:
        more = "use a machine with more cores"
    return Finding("loading", "warning", f"is in the way, not computing: {text}", store + more)
