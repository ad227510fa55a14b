"""Measured costs of loading, as people and programs read them."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from tqdm import tqdm

from mgexp.data.clips import TrainingClips
from mgexp.multigrid.phases import Phase
from mgexp.multigrid.sampler import ClipRequest
from mgexp.multigrid.schedule import Schedule
from mgexp.multigrid.shapes import Cycle
from mgexp.text import aligned
from mgexp.video.reader import VideoError

StrideRange = tuple[int, int] | None
Kind = tuple[int, int, StrideRange]
"""(frames, crop, stride range): what the cost of a clip depends on."""


@dataclass(frozen=True)
class Leg:
    """All phases that load the same kinds of clips, together; what differs is the learning rate.

    ``clips_per_step``: a mean over the cycle, of all processes.
    """

    cycle: Cycle
    stride_range: StrideRange
    num_steps: int
    clips_per_step: float

    def clips_of(self) -> dict[Kind, float]:
        """Clips of each kind in a step, a mean over the cycle."""
        found: dict[Kind, float] = {}
        for shape in self.cycle.shapes:
            kind = (shape.frames, shape.crop, self.stride_range)
            share = shape.ratio / sum(other.ratio for other in self.cycle.shapes)
            found[kind] = found.get(kind, 0.0) + share * self.clips_per_step
        return found

    def core_seconds_per_step(self, seconds: Mapping[Kind, float]) -> float:
        """Of one core, from ``seconds`` per clip of each kind."""
        return sum(clips * seconds[kind] for kind, clips in self.clips_of().items())


def legs_of(schedule: Schedule) -> tuple[Leg, ...]:
    """The legs of a schedule, in the order of their first phases."""
    order: dict[tuple[Cycle, StrideRange], list[Phase]] = {}
    for phase in schedule.phases:
        order.setdefault((phase.cycle, phase.stride_range), []).append(phase)
    return tuple(
        Leg(
            cycle,
            stride_range,
            sum(phase.num_steps for phase in phases),
            schedule.recipe.clips * cycle.mean_ratio,
        )
        for (cycle, stride_range), phases in order.items()
    )


def kinds_of(legs: tuple[Leg, ...]) -> tuple[Kind, ...]:
    """Every kind of clip that is loaded, each once."""
    return tuple(dict.fromkeys(kind for leg in legs for kind in leg.clips_of()))


def core_seconds(legs: tuple[Leg, ...], seconds: Mapping[Kind, float]) -> float:
    """Of one core, for all clips of all steps."""
    return sum(leg.num_steps * leg.core_seconds_per_step(seconds) for leg in legs)


def seconds_per_clip(legs: tuple[Leg, ...], seconds: Mapping[Kind, float]) -> float:
    """Of one core, a mean over all clips of all steps."""
    return core_seconds(legs, seconds) / sum(leg.num_steps * leg.clips_per_step for leg in legs)


def unevenness(legs: tuple[Leg, ...], seconds: Mapping[Kind, float]) -> float:
    """How many times as much a step of the dearest leg costs as one of the cheapest."""
    costs = [leg.core_seconds_per_step(seconds) for leg in legs]
    return max(costs) / min(costs)


Load = Callable[[ClipRequest], object]
"""Loads one clip; raises where that fails."""


@dataclass(frozen=True)
class Timings:
    """Seconds per clip of one way to load: by kind, a mean over the videos for each repeat."""

    by_kind: Mapping[Kind, tuple[float, ...]]

    @property
    def num_repeats(self) -> int:
        """How often each kind was measured."""
        return min(len(values) for values in self.by_kind.values())

    def repeat(self, number: int) -> dict[Kind, float]:
        """One measurement."""
        return {kind: values[number] for kind, values in self.by_kind.items()}

    def median(self) -> dict[Kind, float]:
        """Over the repeats."""
        return {kind: statistics.median(values) for kind, values in self.by_kind.items()}


def measure(
    ways: Mapping[str, Load],
    kinds: Sequence[Kind],
    num_videos: int,
    num_repeats: int,
    progress: bool = False,
) -> dict[str, Timings]:
    """Times every way on the same requests: a clip of each of ``num_videos`` for each kind and repeat.

    The ways take turns, and the order of turns is reversed from repeat to repeat, so that a machine that gets
    slower or faster does so for all. Before, each loads one clip of each video: files are in memory by then.
    ``progress`` shows a bar on a terminal. Raises what a way raises.
    """
    for load in ways.values():
        _seconds(load, _requests(kinds[0], num_videos, num_repeats))
    found: dict[str, dict[Kind, list[float]]] = {
        name: {kind: [] for kind in kinds} for name in ways
    }
    turns = [(number, kind) for number in range(num_repeats) for kind in kinds]
    # None: a bar on a terminal alone.
    for number, kind in tqdm(turns, desc="loading", disable=None if progress else True):
        requests = _requests(kind, num_videos, number)
        for name in list(ways)[:: -1 if number % 2 else 1]:
            found[name][kind].append(_seconds(ways[name], requests))
    return {
        name: Timings({kind: tuple(values) for kind, values in by_kind.items()})
        for name, by_kind in found.items()
    }


def loader_of(clips: TrainingClips) -> Load:
    """The way in which training loads its clips; raises VideoError for a video that fails."""

    def load(request: ClipRequest) -> None:
        clip = clips[request]
        if clip.unusable:
            index, reason = clip.unusable[0]
            raise VideoError(clips.records[index].path, f"cannot be measured: {reason}")

    return load


@contextmanager
def one_core() -> Iterator[None]:
    """This process on one core, any, where the system can do that, and torch in one thread, as a worker is."""
    threads, can_pin = torch.get_num_threads(), hasattr(os, "sched_setaffinity")
    cores = os.sched_getaffinity(0) if can_pin else set()
    torch.set_num_threads(1)
    if can_pin:  # Linux
        os.sched_setaffinity(0, {random.choice([*cores])})
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if can_pin:
            os.sched_setaffinity(0, cores)


def _requests(kind: Kind, num_videos: int, repeat: int) -> list[ClipRequest]:
    frames, crop, stride_range = kind
    return [
        ClipRequest(video, frames, crop, stride_range, (repeat, video))
        for video in range(num_videos)
    ]


def _seconds(load: Load, requests: Sequence[ClipRequest]) -> float:
    start = time.perf_counter()
    for request in requests:
        load(request)
    return (time.perf_counter() - start) / len(requests)


@dataclass(frozen=True)
class LoadingCosts:
    """The legs of a schedule, and the timings of each way to load their clips; the first way is compared with."""

    legs: tuple[Leg, ...]
    ways: Mapping[str, Timings]

    def ms_per_clip(self, way: str) -> list[float]:
        """Milliseconds of one core, a mean over all clips of the schedule, for each repeat."""
        timings = self.ways[way]
        repeats = range(timings.num_repeats)
        return [1000 * seconds_per_clip(self.legs, timings.repeat(number)) for number in repeats]

    def times_less(self, way: str) -> list[float]:
        """How many times less a clip costs than by the first way, for each repeat."""
        first = next(iter(self.ways))
        pairs = zip(self.ms_per_clip(first), self.ms_per_clip(way), strict=True)
        return [other / own for other, own in pairs]

    def unevenness(self, way: str) -> float:
        """How many times as much the dearest step costs as the cheapest, of the medians."""
        return unevenness(self.legs, self.ways[way].median())

    def core_hours(self, way: str) -> float:
        """To load all clips of the schedule, of the medians."""
        return core_seconds(self.legs, self.ways[way].median()) / 3600

    def per_step(self, way: str) -> list[float]:
        """Core seconds of a step of each leg, of the medians."""
        medians = self.ways[way].median()
        return [leg.core_seconds_per_step(medians) for leg in self.legs]


def clip_table(costs: LoadingCosts) -> str:
    """A line per leg: its shapes, and milliseconds per clip in each way."""
    return _leg_table(
        costs,
        "ms per clip",
        lambda leg, seconds: f"{1000 * seconds / leg.clips_per_step:.2f}",
    )


def step_table(costs: LoadingCosts) -> str:
    """A line per leg: core seconds of a step in each way."""
    return _leg_table(costs, "core s per step", lambda _, seconds: f"{seconds:.2f}")


def way_table(costs: LoadingCosts) -> str:
    """A line per way: its clips over the whole schedule."""
    head = ("", "ms per clip", "clips/s per core", "times less", "dearest / cheapest step", "hours")
    rows = [
        (
            way,
            _spread(costs.ms_per_clip(way), 2),
            f"{1000 / median(costs.ms_per_clip(way)):.0f}",
            _spread(costs.times_less(way), 1),
            f"{costs.unevenness(way):.2f}",
            f"{costs.core_hours(way):.2f}",
        )
        for way in costs.ways
    ]
    return aligned([head, *rows])


def demand_table(costs: LoadingCosts, steps_per_second: float) -> str:
    """A line per leg: clips per second that ``steps_per_second`` need, and how many cores that is in each way."""
    head = ("frames", "crops", "clips/s", *(f"cores: {way}" for way in costs.ways))
    steps = [costs.per_step(way) for way in costs.ways]
    rows = [
        (
            *_shape_cells(leg)[:2],
            f"{steps_per_second * leg.clips_per_step:.0f}",
            *(f"{steps_per_second * seconds[index]:.1f}" for seconds in steps),
        )
        for index, leg in enumerate(costs.legs)
    ]
    return aligned([head, *rows])


def costs_json(costs: LoadingCosts) -> dict[str, Any]:
    """All that was measured."""
    return {
        "legs": [
            {
                "frames": leg.cycle.base.frames,
                "crops": [shape.crop for shape in leg.cycle.shapes],
                "stride_range": leg.stride_range,
                "steps": leg.num_steps,
                "clips_per_step": leg.clips_per_step,
            }
            for leg in costs.legs
        ],
        "ways": {way: _way_json(costs, way) for way in costs.ways},
    }


def _way_json(costs: LoadingCosts, way: str) -> dict[str, Any]:
    return {
        "ms_per_clip": costs.ms_per_clip(way),
        "times_less": costs.times_less(way),
        "core_seconds_per_step": costs.per_step(way),
        "dearest_to_cheapest_step": costs.unevenness(way),
        "core_hours": costs.core_hours(way),
        "kinds": [
            {
                **dict(zip(("frames", "crop", "stride_range"), kind, strict=True)),
                "ms_per_clip": [1000 * value for value in costs.ways[way].by_kind[kind]],
            }
            for kind in kinds_of(costs.legs)
        ],
    }


def _leg_table(costs: LoadingCosts, what: str, cell: Callable[[Leg, float], str]) -> str:
    head = ("frames", "crops", "stride", "steps", "clips/step", *costs.ways)
    steps = [costs.per_step(way) for way in costs.ways]
    rows = [
        (*_shape_cells(leg), *(cell(leg, seconds[index]) for seconds in steps))
        for index, leg in enumerate(costs.legs)
    ]
    return f"{what}\n{aligned([head, *rows])}"


def _shape_cells(leg: Leg) -> tuple[str, ...]:
    low, high = leg.stride_range or (0, 0)
    stride = (
        "segments" if leg.stride_range is None else str(low) if low == high else f"{low}–{high}"
    )
    return (
        str(leg.cycle.base.frames),
        " ".join(str(shape.crop) for shape in leg.cycle.shapes),
        stride,
        str(leg.num_steps),
        f"{leg.clips_per_step:.1f}",
    )


def _spread(values: Sequence[float], decimals: int) -> str:
    """Median, least and largest."""
    texts = [f"{value:.{decimals}f}" for value in (median(values), min(values), max(values))]
    return f"{texts[0]} ({texts[1]}–{texts[2]})"
