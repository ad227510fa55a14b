"""Write the timed steps of tools/bench_step.py as tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from measuring import spread
from operators import OperatorTime, operator_table
from peak import Peak
from plain_step import ONE_GROUP, OURS, PLAIN
from roofline import Roofline

from mgexp.multigrid.schedule import StepShape
from mgexp.plan.timing import TimedSteps
from mgexp.text import aligned

GIB = 2**30


@dataclass(frozen=True)
class StepTimes:
    """The timed steps of each way at each shape. The tables show the first way in detail.

    ``flops`` counts a step. ``base`` are the base shapes of the phases. ``held_bytes`` is the memory of weights,
    gradients and momenta. ``kept_bytes`` estimates the activations that a step keeps for its backward pass.
    ``peak`` has the highest rates of the machine. ``rooflines`` are those of a step in one BN group, where that is
    a way. ``operators`` are those of our step, if they were asked for.
    """

    ways: Mapping[str, Mapping[StepShape, TimedSteps]]
    flops: Mapping[StepShape, int]
    base: tuple[StepShape, ...]
    held_bytes: int
    kept_bytes: Mapping[StepShape, int]
    peak: Peak
    rooflines: Mapping[StepShape, Roofline] = field(default_factory=dict)
    operators: Mapping[StepShape, tuple[OperatorTime, ...]] = field(default_factory=dict)

    @property
    def first(self) -> str:
        """The first way."""
        return next(iter(self.ways))

    @property
    def shapes(self) -> tuple[StepShape, ...]:
        """The shapes that were measured."""
        return tuple(self.ways[self.first])

    @property
    def is_memory_measured(self) -> bool:
        """Whether memory was measured, as on a GPU. Elsewhere it is estimated."""
        return all(
            timed.used_bytes is not None for way in self.ways.values() for timed in way.values()
        )

    def clips_per_second(self, way: str, shape: StepShape) -> float:
        """Compute the clips per second of the median step."""
        return shape.clips / self.ways[way][shape].median

    def flops_per_second(self, way: str, shape: StepShape) -> float:
        """Compute the training FLOPs per second of the median step. fvcore counts no batch norm and no update."""
        return self.flops[shape] / self.ways[way][shape].median

    def share_of_peak(self, way: str, shape: StepShape) -> float:
        """Divide the FLOP/s of the median step by the measured peak."""
        return self.flops_per_second(way, shape) / self.peak.flops_per_second

    def times_roofline(self, way: str, shape: StepShape) -> float:
        """Divide the median step by the least time that its operators need on this machine."""
        return self.ways[way][shape].median / self.rooflines[shape].seconds(self.peak)

    def memory_bytes(self, way: str, shape: StepShape) -> int:
        """Return the peak memory of a run. It is measured on a GPU. On a CPU it is estimated without workspace."""
        used = self.ways[way][shape].used_bytes
        return self.held_bytes + (self.kept_bytes[shape] if used is None else used)

    def times_faster(self, shape: StepShape, way: str, than: str = PLAIN) -> list[float]:
        """Divide the clips per second of ``way`` by those of ``than``, for each repeat; [] if one is missing."""
        if not {way, than} <= set(self.ways):
            return []
        both = (self.ways[each][shape].seconds for each in (than, way))
        return [its / own for its, own in zip(*both, strict=True)]

    def bn_group_costs(self, shape: StepShape) -> list[float]:
        """Compare our step with the same step with one BN group, in each repeat: 0.1 if ours takes 10 % longer."""
        return [1 / ratio - 1 for ratio in self.times_faster(shape, OURS, ONE_GROUP)]

    def slowest_to_fastest(self, way: str) -> float:
        """Divide the median step of the slowest base shape by that of the fastest."""
        seconds = [self.ways[way][shape].median for shape in self.base]
        return max(seconds) / min(seconds)


def step_report(times: StepTimes) -> str:
    """Write all tables and lines."""
    memory = "measured" if times.is_memory_measured else "estimated"
    title = (
        f"{times.first}: ms per step, median (p10–p90); memory is {memory}; * base shape of a phase"
    )
    parts = [f"{title}\n{_shape_table(times)}"]
    if len(times.ways) > 1:
        parts.append(f"ms per step in each way, median (p10–p90)\n{_way_table(times)}")
    peak = times.peak
    lines = [
        f"measured peak: {peak.flops_per_second / 1e9:,.1f} GFLOP/s (matrix product "
        f"{peak.matmul / 1e9:,.1f}, convolution {peak.conv / 1e9:,.1f}), {peak.bytes_per_second / 1e9:,.1f} GB/s"
    ]
    if len(times.base) > 1:
        each = ", ".join(f"{way} {times.slowest_to_fastest(way):.2f}" for way in times.ways)
        lines.append(f"base shapes, slowest step / fastest step: {each}")
    for shape in times.shapes:
        costs = times.bn_group_costs(shape)
        if costs and shape.num_bn_groups > 1:
            share = spread([100 * cost for cost in costs], 1)
            lines.append(f"{shape}: {shape.num_bn_groups} BN groups cost {share} % over one")
    parts.append("\n".join(lines))
    for shape, operators in times.operators.items():
        table = operator_table(operators)
        parts.append(f"the operators of our step at {shape} that take most of its time\n{table}")
    return "\n\n".join(parts)


def _shape_table(times: StepTimes) -> str:
    """Write a line for each shape, with the first way in detail."""
    way = times.first
    is_compared = PLAIN in times.ways and way != PLAIN
    head = [
        *("clips x frames x pixels²", "BN groups", "ms per step", "clips/s", "GFLOP/s"),
        *("% of peak", "GiB"),
        *["x roofline"] * bool(times.rooflines),
    ]
    rows = [[*head, "x plain's clips/s"] if is_compared else head]
    for shape in times.shapes:
        row = [
            _name(times, shape),
            str(shape.num_bn_groups),
            _ms(times.ways[way][shape]),
            f"{times.clips_per_second(way, shape):.3g}",
            f"{times.flops_per_second(way, shape) / 1e9:,.1f}",
            f"{100 * times.share_of_peak(way, shape):.1f}",
            f"{times.memory_bytes(way, shape) / GIB:.2f}",
        ]
        if times.rooflines:
            row.append(f"{times.times_roofline(way, shape):.2f}")
        rows.append([*row, spread(times.times_faster(shape, way))] if is_compared else row)
    return aligned(rows)


def _way_table(times: StepTimes) -> str:
    """Write a line for each shape: the step of every way, and the extra time of the first way's first step."""
    rows = [["clips x frames x pixels²", *times.ways, "first use, s"]]
    for shape in times.shapes:
        first_use = times.ways[times.first][shape].first_use_seconds
        each = [_ms(steps[shape]) for steps in times.ways.values()]
        rows.append([_name(times, shape), *each, f"{first_use:.2f}"])
    return aligned(rows)


def _name(times: StepTimes, shape: StepShape) -> str:
    return f"{shape}{' *' if shape in times.base else ''}"


def _ms(timed: TimedSteps) -> str:
    decimals = 0 if timed.median >= 1 else 1
    texts = [f"{1000 * value:,.{decimals}f}" for value in (timed.median, timed.p10, timed.p90)]
    return f"{texts[0]} ({texts[1]}–{texts[2]})"


def times_json(times: StepTimes) -> dict[str, Any]:
    """Return everything that was measured, for JSON."""
    shapes = []
    for shape in times.shapes:
        ways, roofline = {}, times.rooflines.get(shape)
        for way, steps in times.ways.items():
            timed = steps[shape]
            ways[way] = {
                "median_seconds": timed.median,
                "p10_seconds": timed.p10,
                "p90_seconds": timed.p90,
                "first_use_seconds": timed.first_use_seconds,
                "clips_per_second": times.clips_per_second(way, shape),
                "flops_per_second": times.flops_per_second(way, shape),
                "share_of_peak": times.share_of_peak(way, shape),
                "times_roofline": times.times_roofline(way, shape) if times.rooflines else None,
                "memory_bytes": times.memory_bytes(way, shape),
                "times_plain": times.times_faster(shape, way),
                "warmup_seconds": list(timed.warmup_seconds),
                "seconds": list(timed.seconds),
            }
        shapes.append(
            {
                **asdict(shape),
                "is_base": shape in times.base,
                "flops_per_step": times.flops[shape],
                "bytes_per_step": roofline and roofline.num_bytes,
                "roofline_seconds": roofline and roofline.seconds(times.peak),
                "ways": ways,
                "bn_group_costs": times.bn_group_costs(shape),
                "operators": [asdict(one) for one in times.operators.get(shape, ())],
            }
        )
    unevenness = {way: times.slowest_to_fastest(way) for way in times.ways} if times.base else {}
    return {
        "peak": {**asdict(times.peak), "flops_per_second": times.peak.flops_per_second},
        "held_bytes": times.held_bytes,
        "memory": "measured" if times.is_memory_measured else "estimated",
        "base_slowest_to_fastest": unevenness,
        "shapes": shapes,
    }
