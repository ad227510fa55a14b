"""The cost of loading a schedule: kinds of clips, their seconds on one core, sums over all steps, and tables."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import torch

from mgexp.config.keys import Config
from mgexp.data.clips import TrainingClips
from mgexp.data.loader import build_training_clips
from mgexp.data.records import Record
from mgexp.multigrid.phases import Phase
from mgexp.multigrid.sampler import ClipRequest
from mgexp.multigrid.schedule import Schedule
from mgexp.multigrid.shapes import Cycle
from mgexp.run.log import progress_bar
from mgexp.text import aligned, spread
from mgexp.video.reader import Opener, VideoError

StrideRange = tuple[int, int] | None
Kind = tuple[int, int, StrideRange]
"""(frames, crop, stride range): the cost of a clip depends on these three."""

Seconds = Mapping[Kind, Sequence[float]]
"""Seconds per clip of each kind: a number for each repeat, which is the mean over the videos."""

Load = Callable[[ClipRequest], object]
"""A way to load: it loads one clip, and raises an error where that fails."""


@dataclass(frozen=True)
class Leg:
    """All phases of a schedule that load the same kinds of clips; these phases differ in learning rate alone.

    ``clips_per_step``: the clips of all processes together, as a mean over the cycle.
    """

    cycle: Cycle
    stride_range: StrideRange
    num_steps: int
    clips_per_step: float

    def clips_of(self) -> dict[Kind, float]:
        """Count the clips of each kind in a step, as a mean over the cycle."""
        found: dict[Kind, float] = {}
        for shape in self.cycle.shapes:
            kind = (shape.frames, shape.crop, self.stride_range)
            share = shape.ratio / sum(other.ratio for other in self.cycle.shapes)
            found[kind] = found.get(kind, 0.0) + share * self.clips_per_step
        return found

    def core_seconds_per_step(self, seconds: Mapping[Kind, float]) -> float:
        """Sum the core seconds of the clips of a step. ``seconds``: core seconds of a clip of each kind."""
        return sum(clips * seconds[kind] for kind, clips in self.clips_of().items())


def legs_of(schedule: Schedule) -> tuple[Leg, ...]:
    """Join phases with the same cycle and strides into legs, ordered by their first phases."""
    order: dict[tuple[Cycle, StrideRange], list[Phase]] = {}
    for phase in schedule.phases:
        order.setdefault((phase.cycle, phase.stride_range), []).append(phase)
    clips = schedule.recipe.clips
    return tuple(
        Leg(cycle, strides, sum(phase.num_steps for phase in phases), clips * cycle.mean_ratio)
        for (cycle, strides), phases in order.items()
    )


def kinds_of(legs: Iterable[Leg]) -> tuple[Kind, ...]:
    """List every kind of clip that the legs load, each once."""
    return tuple(dict.fromkeys(kind for leg in legs for kind in leg.clips_of()))


def medians(seconds: Seconds) -> dict[Kind, float]:
    """Return for each kind the median over the repeats."""
    return {kind: median(values) for kind, values in seconds.items()}


def measure(
    ways: Mapping[str, Load],
    kinds: Sequence[Kind],
    num_videos: int,
    num_repeats: int = 1,
    budget_seconds: float = 0.0,
    progress: bool = False,
) -> dict[str, dict[Kind, list[float]]]:
    """Time every way to load on the same clips: in each repeat, one clip of each kind from each video.

    There are at least ``num_repeats`` repeats, and more while another one fits into ``budget_seconds``.
    ``progress`` shows a bar. An error of a way passes through.
    """

    def mean_seconds(load: Load, kind: Kind, repeat: int) -> float:
        frames, crop, stride_range = kind
        # The seed of a request does not depend on the way. So all ways load the same clips.
        requests = [
            ClipRequest(video, frames, crop, stride_range, (repeat, video))
            for video in range(num_videos)
        ]
        start = time.perf_counter()
        for request in requests:
            load(request)
        return (time.perf_counter() - start) / num_videos

    start = time.perf_counter()
    # Load one clip of each video first. After that, the system holds the files in memory, so the
    # disk is not timed.
    for load in ways.values():
        mean_seconds(load, kinds[0], num_repeats)
    found: dict[str, dict[Kind, list[float]]] = {
        name: {kind: [] for kind in kinds} for name in ways
    }
    number, repeat_seconds = 0, 0.0
    # Nobody knows how many repeats fit into a budget, so the bar counts its seconds.
    total, unit = num_repeats * len(kinds), " kinds of clips"
    if budget_seconds:
        total, unit = round(budget_seconds), " s"
    with progress_bar(total, unit, desc="loading", is_shown=progress) as bar:
        while number < num_repeats or (
            time.perf_counter() - start + repeat_seconds <= budget_seconds
        ):
            before = time.perf_counter()
            for kind in kinds:
                for name in in_turn(ways, number):
                    found[name][kind].append(mean_seconds(ways[name], kind, number))
                bar.update(int(time.perf_counter() - start) - bar.n if budget_seconds else 1)
            repeat_seconds = time.perf_counter() - before
            number += 1
    return found


def in_turn(ways: Iterable[str], number: int) -> list[str]:
    """Return the names of the ways in the order of repeat ``number``: every second repeat reverses them.

    A machine that gets slower over time, as when it gets hot, then slows all ways equally.
    """
    return list(ways)[:: -1 if number % 2 else 1]


def loader_of(clips: TrainingClips) -> Load:
    """Return a way that loads ``clips`` as training does, but raises VideoError where a video fails."""

    def load(request: ClipRequest) -> None:
        clip = clips[request]
        # Training replaces a broken video by another one. Here that would time the wrong clip.
        if clip.unusable:
            index, reason = clip.unusable[0]
            raise VideoError(clips.records[index].path, f"cannot be measured: {reason}")

    return load


def build_clip_seconds(
    cfg: Config,
    legs: Sequence[Leg],
    records: Sequence[Record],
    opener: Opener,
    budget_seconds: float = 0.0,
    progress: bool = False,
) -> dict[Kind, float]:
    """Time on one core a clip of each kind of ``legs``.

    Each number is the mean over ``records``, and of these means the median over repeats. ``progress`` shows a bar.
    Raises VideoError if a video fails.
    """
    ways = {"": loader_of(build_training_clips(cfg, records, opener))}
    with one_core():
        timed = measure(
            ways, kinds_of(legs), len(records), budget_seconds=budget_seconds, progress=progress
        )
    return medians(timed[""])


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this process on one core (on Linux) and torch in one thread, as in a loader worker."""
    # Otherwise FFmpeg and torch could use several cores, and the seconds would not be core seconds.
    threads, can_pin = torch.get_num_threads(), hasattr(os, "sched_setaffinity")
    cores = os.sched_getaffinity(0) if can_pin else set()
    torch.set_num_threads(1)
    # The core is random, because all processes of a run may time clips at once. A fixed core would
    # then be the core of all of them.
    if can_pin:
        os.sched_setaffinity(0, {random.choice([*cores])})
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if can_pin:
            os.sched_setaffinity(0, cores)


@dataclass(frozen=True)
class LoadingCosts:
    """The cost of the legs of a schedule in each way to load. The first way is the reference.

    A method that returns one number for all repeats computes it from the medians over the repeats.
    """

    legs: tuple[Leg, ...]
    ways: Mapping[str, Seconds]

    def ms_per_clip(self, way: str) -> list[float]:
        """Return the milliseconds of one core in each repeat, as a mean over all clips of the schedule."""
        kinds = self.ways[way].keys()
        repeats = zip(*self.ways[way].values(), strict=True)
        num_clips = sum(leg.num_steps * leg.clips_per_step for leg in self.legs)
        return [
            1000 * self._core_seconds(dict(zip(kinds, seconds, strict=True))) / num_clips
            for seconds in repeats
        ]

    def times_less(self, way: str) -> list[float]:
        """Divide the cost of a clip in the first way by its cost in ``way``, for each repeat."""
        first = next(iter(self.ways))
        pairs = zip(self.ms_per_clip(first), self.ms_per_clip(way), strict=True)
        return [other / own for other, own in pairs]

    def unevenness(self, way: str) -> float:
        """Divide the cost of a step of the most expensive leg by the cost of a step of the cheapest leg."""
        costs = self.per_step(way)
        return max(costs) / min(costs)

    def core_hours(self, way: str) -> float:
        """Sum the hours of one core for all clips of the schedule."""
        return self._core_seconds(medians(self.ways[way])) / 3600

    def per_step(self, way: str) -> list[float]:
        """Return the core seconds of a step of each leg."""
        seconds = medians(self.ways[way])
        return [leg.core_seconds_per_step(seconds) for leg in self.legs]

    def _core_seconds(self, seconds: Mapping[Kind, float]) -> float:
        return sum(leg.num_steps * leg.core_seconds_per_step(seconds) for leg in self.legs)


def clip_table(costs: LoadingCosts) -> str:
    """Write a line per leg: its shapes, and milliseconds per clip in each way to load."""
    return leg_table(
        costs, "ms per clip", lambda leg, seconds: f"{1000 * seconds / leg.clips_per_step:.2f}"
    )


def leg_table(costs: LoadingCosts, title: str, cell: Callable[[Leg, float], str]) -> str:
    """Write ``title``, and a line per leg with a cell for each way to load.

    ``cell`` writes the text of a cell from the leg and the core seconds of its steps.
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
    head = (
        "",
        "ms per clip",
        "clips/s per core",
        "times cheaper",
        "most expensive / cheapest step",
        "hours",
    )
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
