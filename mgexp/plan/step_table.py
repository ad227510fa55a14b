"""Measured times of training steps, as people and programs read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from mgexp.plan.machine import Peak
from mgexp.plan.step_shapes import StepShape
from mgexp.plan.step_time import TimedSteps, slowest_to_fastest
from mgexp.plan.steppers import ONE_GROUP, OURS, PLAIN
from mgexp.record.text_table import aligned

GIB = 2**30


@dataclass(frozen=True)
class StepTimes:
    """The timed steps of each way at each shape; the first way is the one that is looked at.

    ``flops``: of a step. ``base``: those of the shapes that are base shapes of phases. ``held_bytes``: weights,
    gradients and momenta of a way. ``kept_bytes``: what backward needs of forward, estimated, for a step.
    ``peak``: of the machine.
    """

    ways: Mapping[str, Mapping[StepShape, TimedSteps]]
    flops: Mapping[StepShape, int]
    base: tuple[StepShape, ...]
    held_bytes: int
    kept_bytes: Mapping[StepShape, int]
    peak: Peak

    @property
    def first(self) -> str:
        """The first way."""
        return next(iter(self.ways))

    @property
    def shapes(self) -> tuple[StepShape, ...]:
        """Those that were measured."""
        return tuple(self.ways[self.first])

    @property
    def is_memory_measured(self) -> bool:
        """Whether the device told its memory; else it is estimated."""
        return all(
            timed.used_bytes is not None for way in self.ways.values() for timed in way.values()
        )

    def clips_per_second(self, way: str, shape: StepShape) -> float:
        """Of the median step."""
        return shape.clips / self.ways[way][shape].median

    def flops_per_second(self, way: str, shape: StepShape) -> float:
        """Of the median step: training FLOPs by fvcore, batch norm and the update not counted."""
        return self.flops[shape] / self.ways[way][shape].median

    def share_of_peak(self, way: str, shape: StepShape) -> float:
        """Of the measured peak."""
        return self.flops_per_second(way, shape) / self.peak.flops_per_second

    def memory_bytes(self, way: str, shape: StepShape) -> int:
        """What a run of this way would hold at most: measured on a GPU, else estimated without workspace."""
        used = self.ways[way][shape].used_bytes
        return self.held_bytes + (self.kept_bytes[shape] if used is None else used)

    def times_faster(self, shape: StepShape, way: str, than: str = PLAIN) -> list[float]:
        """How many times the clips per second of ``than``, for each repeat; empty where one was not measured."""
        if not {way, than} <= set(self.ways):
            return []
        return self.ways[than][shape].ratios_to(self.ways[way][shape])

    def bn_group_costs(self, shape: StepShape) -> list[float]:
        """What a step of ours takes longer than with a single BN group, as a share, for each repeat."""
        return [1 / ratio - 1 for ratio in self.times_faster(shape, OURS, ONE_GROUP)]

    def slowest_to_fastest(self, way: str) -> float:
        """How many times as long a step at the slowest base shape takes as at the fastest, of the medians."""
        steps = self.ways[way]
        return slowest_to_fastest([steps[shape].median for shape in self.base])


def step_report(times: StepTimes) -> str:
    """All tables and lines."""
    return "\n\n".join(
        part
        for part in (
            f"{times.first}: ms per step, median (p10–p90); memory is "
            f"{'measured' if times.is_memory_measured else 'estimated'}; * base shape of a phase\n"
            + shape_table(times),
            f"ms per step in each way, median (p10–p90)\n{way_table(times)}"
            if len(times.ways) > 1
            else "",
            "\n".join(summary_lines(times)),
        )
        if part
    )


def shape_table(times: StepTimes) -> str:
    """A line per shape: the first way."""
    way = times.first
    is_compared = PLAIN in times.ways and way != PLAIN
    head = (
        *("clips x frames x pixels²", "BN groups", "ms per step", "clips/s", "GFLOP/s"),
        *("% of peak", "GiB"),
        *(("x plain's clips/s",) if is_compared else ()),
    )
    rows = [
        (
            _name(times, shape),
            str(shape.num_bn_groups),
            _ms(times.ways[way][shape]),
            f"{times.clips_per_second(way, shape):.3g}",
            f"{times.flops_per_second(way, shape) / 1e9:,.1f}",
            f"{100 * times.share_of_peak(way, shape):.1f}",
            f"{times.memory_bytes(way, shape) / GIB:.2f}",
            *((_spread(times.times_faster(shape, way)),) if is_compared else ()),
        )
        for shape in times.shapes
    ]
    return aligned([head, *rows])


def way_table(times: StepTimes) -> str:
    """A line per shape: every way, and what the first step took longer than later ones in the first way."""
    head = ("clips x frames x pixels²", *times.ways, "first use, s")
    rows = [
        (
            _name(times, shape),
            *(_ms(steps[shape]) for steps in times.ways.values()),
            f"{times.ways[times.first][shape].first_use_seconds:.2f}",
        )
        for shape in times.shapes
    ]
    return aligned([head, *rows])


def summary_lines(times: StepTimes) -> list[str]:
    """The peak, how even the steps of the base shapes are, and the cost of BN groups."""
    peak = times.peak
    lines = [
        f"measured peak: {peak.flops_per_second / 1e9:,.1f} GFLOP/s (matrix product "
        f"{peak.matmul / 1e9:,.1f}, convolution {peak.conv / 1e9:,.1f})"
    ]
    if len(times.base) > 1:
        each = ", ".join(f"{way} {times.slowest_to_fastest(way):.2f}" for way in times.ways)
        lines.append(f"base shapes, slowest step / fastest step: {each}")
    for shape in times.shapes:
        costs = times.bn_group_costs(shape)
        if costs and shape.num_bn_groups > 1:
            share = _spread([100 * cost for cost in costs], 1)
            lines.append(f"{shape}: {shape.num_bn_groups} BN groups cost {share} % over one")
    return lines


def times_json(times: StepTimes) -> dict[str, Any]:
    """All that was measured."""
    return {
        "peak": {**asdict(times.peak), "flops_per_second": times.peak.flops_per_second},
        "held_bytes": times.held_bytes,
        "memory": "measured" if times.is_memory_measured else "estimated",
        "base_slowest_to_fastest": {way: times.slowest_to_fastest(way) for way in times.ways}
        if times.base
        else {},
        "shapes": [_shape_json(times, shape) for shape in times.shapes],
    }


def _shape_json(times: StepTimes, shape: StepShape) -> dict[str, Any]:
    return {
        **asdict(shape),
        "is_base": shape in times.base,
        "flops_per_step": times.flops[shape],
        "ways": {way: _way_json(times, way, shape) for way in times.ways},
        "bn_group_costs": times.bn_group_costs(shape),
    }


def _way_json(times: StepTimes, way: str, shape: StepShape) -> dict[str, Any]:
    timed = times.ways[way][shape]
    return {
        "median_seconds": timed.median,
        "p10_seconds": timed.p10,
        "p90_seconds": timed.p90,
        "first_use_seconds": timed.first_use_seconds,
        "clips_per_second": times.clips_per_second(way, shape),
        "flops_per_second": times.flops_per_second(way, shape),
        "share_of_peak": times.share_of_peak(way, shape),
        "memory_bytes": times.memory_bytes(way, shape),
        "times_plain": times.times_faster(shape, way),
        "warmup_seconds": list(timed.warmup_seconds),
        "seconds": list(timed.seconds),
    }


def _name(times: StepTimes, shape: StepShape) -> str:
    return f"{shape}{' *' if shape in times.base else ''}"


def _ms(timed: TimedSteps) -> str:
    decimals = 0 if timed.median >= 1 else 1
    texts = [f"{1000 * value:,.{decimals}f}" for value in (timed.median, timed.p10, timed.p90)]
    return f"{texts[0]} ({texts[1]}–{texts[2]})"


def _spread(values: Sequence[float], decimals: int = 2) -> str:
    """Median, least and largest."""
    texts = [f"{value:.{decimals}f}" for value in (median(values), min(values), max(values))]
    return f"{texts[0]} ({texts[1]}–{texts[2]})"
