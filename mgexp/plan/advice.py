"""Find what slows a row down on this machine: precision, computing or loading. For tools/doctor.py."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from mgexp.config.keys import Config
from mgexp.config.load import in_fold
from mgexp.data.lists import build_list
from mgexp.data.loader import build_opener, store_problems, worker_count
from mgexp.dist import device_of
from mgexp.errors import TrainingError, collected
from mgexp.multigrid.schedule import Schedule, StepShape, step_counts
from mgexp.plan.doctor import Finding
from mgexp.plan.loading import Kind, build_clip_seconds, phase_loads
from mgexp.plan.predict import MeanStep, Resources
from mgexp.plan.timing import Stopwatch, measure_steps
from mgexp.plan.ways import TrainingStep, build_training_step
from mgexp.run.environment import num_cores
from mgexp.run.remote import is_listed
from mgexp.text import counted
from mgexp.train.precision import Precision
from mgexp.train.precision_check import PrecisionCheck, check_precision
from mgexp.train.setup import build_memory_problems
from mgexp.train.step import explaining_memory
from mgexp.video.paths import evenly_spaced
from mgexp.video.reader import VideoError

UNEVEN = 1.5
"""Largest normal ratio of the seconds of a pixel at the slowest shape to those at the fastest. Assumption."""
NUM_REPEATS = 3
"""Timed steps at each size. The fastest counts, because other programs make a step slower and never faster."""
SPEED = "speed"
"""The name of the finding on the speed-up of computing."""
PAYS = 1.2
"""Smallest speed-up that is worth a change to multigrid. Assumption."""
KEEPS_UP = 1.1
"""Loading keeps up if a step with it takes at most this many times the step alone. Assumption: timings vary by as
much."""
NUM_CLIPS = 4
"""Number of videos from which one clip of each kind is timed."""
FEW_STEPS, FEW_PHASE_STEPS = 700, 35
"""A training at several shapes, or a phase of it, with fewer steps gets a warning. The 700 are measured on the
quickstart with one seed and a fixed stride: multigrid rows of 702 to 904 steps lost 1.1 points or less, those of
602 or fewer lost 4.6 or more. The 35 are an assumption. With one shape, fewer steps may do: ``lars_8x`` of
experiments/large_batch has 188, and is as accurate as its baseline with three seeds. More steps are no guarantee:
``long_short`` of the quickstart has 710, and lost 6.1 points with 23 seeds."""
SHORT_RATIO = 4
"""The limit of the clips that the advice gives for a training of few steps: 82 % in place of 39 % there."""


def build_row_findings(cfg: Config, schedule: Schedule) -> Iterator[Finding]:
    """Check a row on this machine: precision, shared memory, seconds of steps, loading, number of steps."""
    device = device_of(cfg.DEVICE)
    torch.set_num_threads(cfg.TRAIN.NUM_THREADS or torch.get_num_threads())
    way = build_training_step(cfg, device)
    step, precision = way.step, way.step.precision
    counts = step_counts(schedule)
    checked: list[PrecisionCheck] = []
    try:
        if not precision.is_exact:
            cut = step.part_shapes(counts)
            checked += check_precision(step.model, cut, way.data.task, step.normalizer, precision)
        yield from precision_findings(precision, checked)
        for problem in build_memory_problems(cfg, schedule, 1, 1):
            yield Finding("shared memory of the row", "problem", problem, "see the line above")
        # Kernels that compute wrongly may also crash the process, so the steps are then timed in fp32.
        is_right = not any(one.faults for one in checked)
        used = precision if is_right else Precision("fp32")
        with used.backends():
            seconds = time_gradients(replace(way, step=replace(step, precision=used)), [*counts])
    except TrainingError as error:
        # A shape does not fit into the memory. The other measurements need the seconds of every shape.
        yield Finding(SPEED, "problem", str(error), "see the line above")
        return
    num_shapes = len({(shape.frames, shape.crop) for shape in counts})
    yield evenness_finding(seconds, num_shapes)
    loading = build_loading_finding(cfg, schedule, sum(seconds.values()) / len(seconds))
    speedup = compute_speedup(seconds, counts, schedule.baseline_steps)
    yield speedup_finding(speedup, num_shapes, loading)
    yield loading
    if is_listed(in_fold(cfg).DATA.TRAIN_LIST) or cfg.DATA.NUM_VIDEOS:
        yield steps_finding(schedule)


def time_gradients(
    way: TrainingStep, shapes: Sequence[StepShape], budget_seconds: float = 20.0
) -> dict[StepShape, float]:
    """Time forward and backward at each size (frames and crop): the fastest of three steps after a warm-up step.

    Shapes that are not reached within ``budget_seconds`` are missing from the result. Raises TrainingError if the
    memory does not suffice for a shape.
    """
    start, device = time.perf_counter(), way.data.device
    # The optimizer's update takes the same time for any number of clips, so it is not timed.
    divisor = max(1, min(shape.clips for shape in shapes) // 2)
    found: dict[StepShape, float] = {}
    for shape in {(one.frames, one.crop): one for one in shapes}.values():
        if found and time.perf_counter() - start > budget_seconds:
            break
        used, train = shape, way.gradients
        if device.type == "cpu":
            # Here fewer clips are enough (two at the finest shape), because the time is in proportion to the
            # clips and can be scaled. The BN groups and the parts of the whole mini-batch need not divide so few
            # clips. Their number is even, since mixup and CutMix take pairs.
            clips = 2 * max(1, shape.clips // divisor // 2)
            used, train = replace(shape, clips=clips, num_bn_groups=1), way.uncut().gradients
        with explaining_memory(way.step, shape, lambda: shapes):
            timed = measure_steps({"": train}, [used], NUM_REPEATS, 1, Stopwatch(device))
        found[shape] = min(timed[""][used].seconds) * shape.clips / used.clips
    return found


def precision_findings(precision: Precision, checks: Sequence[PrecisionCheck]) -> list[Finding]:
    """Report whether every shape computes like fp32."""
    if precision.is_exact:
        return [Finding("precision", "OK", "fp32: nothing to check")]
    problems = [problem for one in checks if (problem := one.problem(precision))]
    if problems:
        remedy = "TRAIN.PRECISION fp32"
        return [Finding("precision", "problem", problem, remedy) for problem in problems]
    worst = min(one.min_cosine for one in checks)
    text = f"{precision.name} agrees with fp32 at {counted(len(checks), 'shape')} (worst cosine {worst:.6f})"
    return [Finding("precision", "OK", text)]


def evenness_finding(seconds: Mapping[StepShape, float], num_shapes: int) -> Finding:
    """Report whether a pixel takes about the same time at every shape. ``seconds`` are those of a step."""
    # Steps need not have equal FLOPs: MULTIGRID.MAX_BATCH_RATIO and BATCH_RATIO limit or choose the clips.
    cost = {one: value / (one.clips * one.frames * one.crop**2) for one, value in seconds.items()}
    fastest = min(cost, key=cost.__getitem__)
    slowest = max(cost, key=cost.__getitem__)
    ratio = cost[slowest] / cost[fastest]
    text = (
        f"for as many pixels, slowest to fastest is {ratio:.2f} ({slowest}: {seconds[slowest]:.3g} s, "
        f"{fastest}: {seconds[fastest]:.3g} s)"
    )
    if len(seconds) < num_shapes:
        text += f"; only {len(seconds)} of {num_shapes} shapes were measured in the time"
    if ratio > UNEVEN:
        remedy = (
            f"as many pixels should take about the same time: {slowest} computes badly here; "
            "close other programs, raise TRAIN.BATCH_SIZE, or leave its crop or frames out of MULTIGRID"
        )
        return Finding("steps of all shapes", "warning", text, remedy)
    return Finding("steps of all shapes", "OK", text)


def compute_speedup(
    seconds: Mapping[StepShape, float], counts: Mapping[StepShape, int], baseline_steps: int
) -> float | None:
    """Divide the baseline's seconds of computing by the row's; None if a shape was not measured."""
    by_size = {(shape.frames, shape.crop): value for shape, value in seconds.items()}
    if any((shape.frames, shape.crop) not in by_size for shape in counts):
        return None
    full = max(counts, key=lambda shape: shape.frames * shape.crop**2)
    total = sum(num * by_size[shape.frames, shape.crop] for shape, num in counts.items())
    # All steps of a baseline have the full shape.
    return baseline_steps * by_size[full.frames, full.crop] / total


def speedup_finding(speedup: float | None, num_shapes: int, loading: Finding) -> Finding:
    """Report whether multigrid saves enough time: in computing, and if ``loading`` keeps up with it."""
    if num_shapes == 1:
        return Finding(SPEED, "OK", "this row has one shape: it is a baseline")
    if speedup is None:
        remedy = "run it where a step is faster"
        return Finding(SPEED, "warning", "steps are too slow here to measure every shape", remedy)
    text = f"computing is {speedup:.2f} times as fast as the baseline's"
    if speedup < PAYS:
        return Finding(SPEED, "warning", f"little: {text}", "see the line on steps of all shapes")
    if loading.status == "OK":
        return Finding(SPEED, "OK", f"{text}, and loading keeps up")
    if not loading.values:
        return Finding(SPEED, "OK", f"{text}; whether loading keeps up is not known")
    remedy, values = "see the line on loading first", {"speedup": speedup}
    return Finding(SPEED, "warning", f"{text}, but loading is in the way", remedy, values)


def has_few_steps(schedule: Schedule) -> bool:
    """Return whether a schedule of several shapes, or a phase of it, has fewer steps than FEW_STEPS allows."""
    if len(schedule.sizes) == 1:
        return False
    fewest = min(phase.num_steps for phase in schedule.phases)
    return schedule.total_steps < FEW_STEPS or fewest < FEW_PHASE_STEPS


def steps_finding(schedule: Schedule) -> Finding:
    """Report whether training, and each phase of it, has enough steps to learn."""
    name, fewest = "number of steps", min(phase.num_steps for phase in schedule.phases)
    text = (
        f"{schedule.total_steps:,} for {counted(schedule.num_videos, 'video')}, "
        f"{counted(len(schedule.phases), 'phase')} of {fewest:,} or more; "
        f"the baseline has {schedule.baseline_steps:,}"
    )
    if not has_few_steps(schedule):
        return Finding(name, "OK", text)
    remedy = "raise SOLVER.MAX_EPOCH and SOLVER.STEPS, or lower TRAIN.BATCH_SIZE"
    if schedule.total_steps < schedule.baseline_steps:
        keys = []
        most_clips = max(shape.clips for shape in step_counts(schedule))
        if most_clips > SHORT_RATIO * schedule.recipe.clips:
            keys.append(f"MULTIGRID.MAX_BATCH_RATIO {SHORT_RATIO}")
        ranges = {phase.stride_range for phase in schedule.phases if phase.stride_range}
        if any(least < most for least, most in ranges):
            keys.append("MULTIGRID.RANDOM_STRIDE False")
        if keys:
            remedy += f", or set {' '.join(keys)}"
        remedy += ", or train the baseline"
    return Finding(name, "warning", f"few: {text}", remedy)


def build_loading_finding(cfg: Config, schedule: Schedule, step_seconds: float) -> Finding:
    """Time the loading of the row's videos, if they are here, and report whether it keeps up with training."""
    cfg = in_fold(cfg)
    videos = build_list(cfg, "TRAIN_LIST") if is_listed(cfg.DATA.TRAIN_LIST) else None
    if videos is None or not videos.records:
        remedy = "give DATA.TRAIN_LIST and DATA.PATH_PREFIX, and look at tools/check_data.py"
        return Finding("loading", "warning", "not measured: the row's videos are not here", remedy)
    problems: list[str] = []
    with collected(problems):
        opener = build_opener(cfg)
        problems += store_problems(opener, cfg.DATA.STORE, videos.records)
    if problems:
        return Finding("loading", "problem", problems[0], "see tools/prepare_data.py")
    records = evenly_spaced(videos.records, NUM_CLIPS)
    try:
        seconds = build_clip_seconds(cfg, schedule, records, opener)
    except VideoError as error:
        return Finding("loading", "problem", str(error), "see tools/check_data.py")
    workers = worker_count(cfg.DATA_LOADER.NUM_WORKERS)
    # On a CPU, a step keeps as many cores busy as it has threads.
    busy = torch.get_num_threads() if device_of(cfg.DEVICE).type == "cpu" else 0
    return loading_finding(schedule, seconds, step_seconds, Resources(workers, num_cores(), busy))


def loading_finding(
    schedule: Schedule, seconds: Mapping[Kind, float], step_seconds: float, resources: Resources
) -> Finding:
    """Report whether the workers of one process keep up with its steps.

    ``seconds``: core seconds of a clip of each kind. ``step_seconds``: mean seconds of a step.
    """
    needed = max(load.core_seconds_per_step(seconds) for load in phase_loads(schedule))
    step = MeanStep(step_seconds, needed, resources)
    text = (
        f"the most expensive phase needs {needed:.3g} core-seconds of loading per step of {step_seconds:.3g} s: "
        f"{step.cores_needed:.1f} cores with the step; there are {counted(resources.num_workers, 'worker')} on "
        f"{counted(resources.num_cores, 'core')}"
    )
    values = {"cores": step.cores_needed}
    if step.seconds <= KEEPS_UP * step_seconds:
        return Finding("loading", "OK", f"keeps up: {text}", values=values)
    text = f"limits the speed, a step takes {step.seconds:.3g} s with it: {text}"
    remedy = "see docs/clip_store.md, or set DATA_LOADER.NUM_WORKERS"
    return Finding("loading", "warning", text, remedy, values)
