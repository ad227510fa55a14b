"""Measure a row on this machine for tools/doctor.py: precision, seconds of shapes, loading, number of steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from mgexp.config.keys import Config
from mgexp.dist import device_of
from mgexp.errors import InputError, TrainingError
from mgexp.multigrid.schedule import Schedule, StepShape, step_counts
from mgexp.plan.doctor import Finding
from mgexp.plan.loading import Kind, phase_loads
from mgexp.plan.measure import build_loading_seconds
from mgexp.plan.predict import MeanStep, Resources, build_resources
from mgexp.plan.timing import Stopwatch, measure_steps
from mgexp.plan.ways import TrainingStep, build_training_step
from mgexp.text import counted
from mgexp.train.faults import explaining_memory
from mgexp.train.precision import Precision
from mgexp.train.precision_check import check_precision

PAYS = 1.2
"""Smallest speed-up that is worth a change to multigrid. Assumption."""
KEEPS_UP = 1.1
"""Loading keeps up if a step with it takes at most this many times the step alone. Assumption: timings vary by as
much."""
CPU_CLIPS = 4
"""Most clips of a timed step on a CPU, where the seconds are in proportion to the clips."""
FEW_STEPS, FEW_PHASE_STEPS = 700, 35
"""A training at several shapes, or a phase of it, with fewer steps gets a warning. The 700 are measured on the
quickstart with one seed and a fixed stride: multigrid rows of 702 to 904 steps lost 1.1 points or less, those of
602 or fewer lost 4.6 or more. The 35 are an assumption. With one shape, fewer steps may do: ``lars_8x`` of
experiments/large_batch has 188, and is as accurate as its baseline with three seeds. More steps are no guarantee:
``long_short`` of the quickstart has 710, and lost 5.5 points with 26 seeds."""


def build_row_findings(cfg: Config, schedule: Schedule) -> Iterator[Finding]:
    """Check a row on this machine, one finding after the other."""
    device = device_of(cfg.DEVICE)
    torch.set_num_threads(cfg.TRAIN.NUM_THREADS or torch.get_num_threads())
    way = build_training_step(cfg, device)
    step, precision = way.step, way.step.precision
    counts = step_counts(schedule)
    try:
        parts = step.part_shapes(counts)
        faults = check_precision(step.model, parts, step.normalizer, precision)
        agrees = "agrees with fp32 at every shape" if not precision.is_exact else "nothing to check"
        yield from (
            Finding("precision", "problem", text, "TRAIN.PRECISION fp32") for text in faults
        )
        if not faults:
            yield Finding("precision", "OK", f"{precision.name}: {agrees}")
        # Kernels that compute wrongly may also crash the process, so the steps are then timed in fp32.
        used = Precision("fp32") if faults else precision
        with used.backends():
            seconds = time_gradients(replace(way, step=replace(step, precision=used)), [*counts])
    except TrainingError as error:
        yield Finding("steps", "problem", str(error))
        return
    yield shapes_finding(seconds)
    yield speed_finding(seconds, counts, schedule.baseline_steps)
    yield build_loading_finding(cfg, schedule, sum(seconds.values()) / len(seconds))
    yield steps_finding(schedule)


def time_gradients(way: TrainingStep, shapes: Sequence[StepShape]) -> dict[StepShape, float]:
    """Time forward and backward at each size, after a warm-up. Raises TrainingError for lack of memory."""
    device, seconds = way.data.device, {}
    for shape in {(s.frames, s.crop): s for s in shapes}.values():
        used, train = shape, way.gradients
        if device.type == "cpu":
            used = replace(shape, clips=min(shape.clips, CPU_CLIPS), num_bn_groups=1)
            train = way.uncut().gradients
        with explaining_memory(str(shape)):
            timed = measure_steps({"": train}, [used], 1, 1, Stopwatch(device))
        seconds[shape] = timed[""][used].median * shape.clips / used.clips
    return seconds


def shapes_finding(seconds: Mapping[StepShape, float]) -> Finding:
    """List the seconds of a step at each shape, and those of as many pixels relative to the fastest."""
    per_pixel = {s: value / (s.clips * s.frames * s.crop**2) for s, value in seconds.items()}
    fastest = min(per_pixel.values())
    text = ", ".join(
        f"{shape}: {value:.3g} s ({per_pixel[shape] / fastest:.2f})"
        for shape, value in seconds.items()
    )
    values = {str(shape): value for shape, value in seconds.items()}
    return Finding("steps", "OK", f"{text}; (1.00): fastest for as many pixels", values=values)


def speed_finding(
    seconds: Mapping[StepShape, float], counts: Mapping[StepShape, int], baseline_steps: int
) -> Finding:
    """Divide the baseline's seconds of computing by the row's."""
    by_size = {(shape.frames, shape.crop): value for shape, value in seconds.items()}
    full = max(counts, key=lambda shape: shape.frames * shape.crop**2)
    total = sum(num * by_size[shape.frames, shape.crop] for shape, num in counts.items())
    # All steps of a baseline have the full shape.
    speedup = baseline_steps * by_size[full.frames, full.crop] / total
    text = f"computing is {speedup:.2f} times as fast as the baseline's"
    pays = len(by_size) == 1 or speedup >= PAYS
    return Finding("speed", "OK" if pays else "warning", text, values={"speedup": speedup})


def has_few_steps(schedule: Schedule) -> bool:
    """Return whether a schedule of several shapes, or a phase of it, has fewer steps than FEW_STEPS allows."""
    if len(schedule.sizes) == 1:
        return False
    fewest = min(phase.num_steps for phase in schedule.phases)
    return schedule.total_steps < FEW_STEPS or fewest < FEW_PHASE_STEPS


def steps_finding(schedule: Schedule) -> Finding:
    """Report whether training, and each phase of it, has enough steps to learn."""
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


def build_loading_finding(cfg: Config, schedule: Schedule, step_seconds: float) -> Finding:
    """Time the loading of the row's videos, if they are here, and report whether it keeps up with training."""
    try:
        seconds = build_loading_seconds(cfg, schedule)
    except InputError as error:
        return Finding("loading", "problem", str(error))
    if seconds is None:
        return Finding("loading", "warning", "not measured: the row's videos are not here")
    return loading_finding(schedule, seconds, step_seconds, build_resources(cfg))


def loading_finding(
    schedule: Schedule, seconds: Mapping[Kind, float], step_seconds: float, resources: Resources
) -> Finding:
    """Report whether the workers of one process keep up with its steps.

    ``seconds``: core seconds of a clip of each kind. ``step_seconds``: mean seconds of a step.
    """
    needed = max(load.core_seconds_per_step(seconds) for load in phase_loads(schedule))
    step = MeanStep(step_seconds, needed, resources)
    text = (
        f"a step takes {step.seconds:.3g} s with loading and {step_seconds:.3g} s without; "
        f"{step.cores_needed:.1f} cores would keep up, and there are {resources.num_cores}"
    )
    values = {"cores": step.cores_needed}
    if step.seconds <= KEEPS_UP * step_seconds:
        return Finding("loading", "OK", text, values=values)
    remedy = "see docs/clip_store.md, and DATA_LOADER.NUM_WORKERS"
    return Finding("loading", "warning", text, remedy, values)
