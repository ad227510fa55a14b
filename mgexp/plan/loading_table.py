"""Measured costs of loading, as people and programs read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from mgexp.plan.loading import Leg, core_seconds, kinds_of, seconds_per_clip, unevenness
from mgexp.plan.measure import Timings
from mgexp.record.text_table import aligned


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
