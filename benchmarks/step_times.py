"""Write the timed steps of tools/bench_step.py as JSON, and the JSON as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
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


def times_json(
    ways: Mapping[str, Mapping[StepShape, TimedSteps]],
    flops: Mapping[StepShape, int],
    base: tuple[StepShape, ...],
    held_bytes: int,
    kept_bytes: Mapping[StepShape, int],
    peak: Peak,
    rooflines: Mapping[StepShape, Roofline],
    operators: Mapping[StepShape, tuple[OperatorTime, ...]],
) -> dict[str, Any]:
    """Return the timed steps of each way at each shape, and all that follows from them, for JSON.

    ``flops`` counts a step. ``base`` are the base shapes of the phases. ``held_bytes`` is the memory of weights,
    gradients and momenta. ``kept_bytes`` estimates the activations that a step keeps for its backward pass.
    ``peak`` has the highest rates of the machine. ``rooflines`` are those of a step in one BN group, where that is
    a way. ``operators`` are those of our step, if they were asked for.
    """
    is_measured = all(
        timed.used_bytes is not None for way in ways.values() for timed in way.values()
    )
    shapes = []
    for shape in next(iter(ways.values())):
        timed = {way: steps[shape] for way, steps in ways.items()}
        roofline = rooflines.get(shape)
        least_seconds = roofline and roofline.seconds(peak)
        by_way = {}
        for way, steps in timed.items():
            # fvcore counts no batch norm and no update.
            rate = flops[shape] / steps.median
            # On a CPU the memory is estimated, without workspace.
            used = kept_bytes[shape] if steps.used_bytes is None else steps.used_bytes
            by_way[way] = {
                "median_seconds": steps.median,
                "p10_seconds": steps.p10,
                "p90_seconds": steps.p90,
                "first_use_seconds": steps.first_use_seconds,
                "clips_per_second": shape.clips / steps.median,
                "flops_per_second": rate,
                "share_of_peak": rate / peak.flops_per_second,
                "times_roofline": least_seconds and steps.median / least_seconds,
                "memory_bytes": held_bytes + used,
                "times_plain": times_faster(timed, way, PLAIN),
                "warmup_seconds": list(steps.warmup_seconds),
                "seconds": list(steps.seconds),
            }
        shapes.append(
            {
                **asdict(shape),
                "is_base": shape in base,
                "flops_per_step": flops[shape],
                "bytes_per_step": roofline and roofline.num_bytes,
                "roofline_seconds": least_seconds,
                "ways": by_way,
                # 0.1 if our step takes 10 % longer than the same step in one BN group.
                "bn_group_costs": [1 / ratio - 1 for ratio in times_faster(timed, OURS, ONE_GROUP)],
                "operators": [asdict(one) for one in operators.get(shape, ())],
            }
        )
    medians = {way: [steps[shape].median for shape in base] for way, steps in ways.items() if base}
    return {
        "peak": {**asdict(peak), "flops_per_second": peak.flops_per_second},
        "held_bytes": held_bytes,
        "memory": "measured" if is_measured else "estimated",
        "base_slowest_to_fastest": {way: max(each) / min(each) for way, each in medians.items()},
        "shapes": shapes,
    }


def times_faster(timed: Mapping[str, TimedSteps], way: str, than: str) -> list[float]:
    """Divide the clips per second of ``way`` by those of ``than``, for each repeat; [] if one is missing."""
    if not {way, than} <= timed.keys():
        return []
    both = zip(timed[than].seconds, timed[way].seconds, strict=True)
    return [its / own for its, own in both]


def step_report(found: Mapping[str, Any]) -> str:
    """Write all tables and lines of ``times_json``. The first table shows the first way in detail."""
    shapes, peak = found["shapes"], found["peak"]
    first, *others = shapes[0]["ways"]
    title = f"{first}: ms per step, median (p10–p90); memory is {found['memory']}; * base shape of a phase"
    parts = [f"{title}\n{_shape_table(shapes, first)}"]
    if others:
        parts.append(f"ms per step in each way, median (p10–p90)\n{_way_table(shapes, first)}")
    lines = [
        f"measured peak: {peak['flops_per_second'] / 1e9:,.1f} GFLOP/s (matrix product "
        f"{peak['matmul'] / 1e9:,.1f}, convolution {peak['conv'] / 1e9:,.1f}), "
        f"{peak['bytes_per_second'] / 1e9:,.1f} GB/s"
    ]
    if sum(shape["is_base"] for shape in shapes) > 1:
        ratios = found["base_slowest_to_fastest"].items()
        each = ", ".join(f"{way} {ratio:.2f}" for way, ratio in ratios)
        lines.append(f"base shapes, slowest step / fastest step: {each}")
    for shape in shapes:
        costs, groups = shape["bn_group_costs"], shape["num_bn_groups"]
        if costs and groups > 1:
            share = spread([100 * cost for cost in costs], 1)
            lines.append(f"{_name(shape)}: {groups} BN groups cost {share} % over one")
    parts.append("\n".join(lines))
    for shape in shapes:
        if shape["operators"]:
            table = operator_table(tuple(OperatorTime(**one) for one in shape["operators"]))
            parts.append(
                f"the operators of our step at {_name(shape)} that take most of its time\n{table}"
            )
    return "\n\n".join(parts)


def _shape_table(shapes: list[dict[str, Any]], way: str) -> str:
    """Write a line for each shape, with ``way`` in detail."""
    is_compared = PLAIN in shapes[0]["ways"] and way != PLAIN
    has_rooflines = shapes[0]["roofline_seconds"] is not None
    head = [
        *("clips x frames x pixels²", "BN groups", "ms per step", "clips/s", "GFLOP/s"),
        *("% of peak", "GiB"),
        *["x roofline"] * has_rooflines,
        *["x plain's clips/s"] * is_compared,
    ]
    rows = [head]
    for shape in shapes:
        steps = shape["ways"][way]
        row = [
            _starred(shape),
            str(shape["num_bn_groups"]),
            _ms(steps),
            f"{steps['clips_per_second']:.3g}",
            f"{steps['flops_per_second'] / 1e9:,.1f}",
            f"{100 * steps['share_of_peak']:.1f}",
            f"{steps['memory_bytes'] / GIB:.2f}",
        ]
        if has_rooflines:
            row.append(f"{steps['times_roofline']:.2f}")
        if is_compared:
            row.append(spread(steps["times_plain"]))
        rows.append(row)
    return aligned(rows)


def _way_table(shapes: list[dict[str, Any]], first: str) -> str:
    """Write a line for each shape: the step of every way, and the extra time of the first way's first step."""
    rows = [["clips x frames x pixels²", *shapes[0]["ways"], "first use, s"]]
    for shape in shapes:
        ways = shape["ways"]
        rows.append(
            [_starred(shape), *map(_ms, ways.values()), f"{ways[first]['first_use_seconds']:.2f}"]
        )
    return aligned(rows)


def _name(shape: Mapping[str, Any]) -> str:
    return f"{shape['clips']}x{shape['frames']}x{shape['crop']}²"


def _starred(shape: Mapping[str, Any]) -> str:
    return f"{_name(shape)}{' *' if shape['is_base'] else ''}"


def _ms(steps: Mapping[str, Any]) -> str:
    median, p10, p90 = (steps[f"{name}_seconds"] for name in ("median", "p10", "p90"))
    decimals = 0 if median >= 1 else 1
    texts = [f"{1000 * value:,.{decimals}f}" for value in (median, p10, p90)]
    return f"{texts[0]} ({texts[1]}–{texts[2]})"
