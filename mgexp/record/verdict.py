"""What a row is worth, in one line: losses said as readily as gains."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from mgexp.record.counted import Versus
from mgexp.record.intervals import Difference

NOT_RESOLVED = " (not resolved)"
"""Said where the 95 % interval holds "no difference"."""


def verdict(versus: Versus) -> str:
    """Such as "loses 1.17 points (not resolved), 2.76× faster"; one seed is said to be one.

    Seconds of different code, or of hours apart, are no verdict: FLOPs stand in for them.
    """
    difference = versus.difference
    if difference is None:
        return "not compared: no run of its base with the same seed, device, precision and videos"
    cost = _speed(versus) if versus.is_one_sitting else _flops(versus.flop_ratios)
    parts = ", ".join([_points(difference), cost])
    return f"{parts}; one seed" if difference.num_pairs == 1 else parts


def to_published(score: float, published: str) -> str:
    """Such as "0.20 points below the published 76.8"."""
    distance = f"{abs(score - float(published)):.2f}"
    if distance == "0.00":
        return f"the published {published}"
    side = "above" if score > float(published) else "below"
    return f"{distance} points {side} the published {published}"


def _points(difference: Difference) -> str:
    points = f"{abs(difference.mean):.2f}"
    if points == "0.00":
        return "no difference seen"
    doubt = difference.half_width is not None and difference.half_width >= abs(difference.mean)
    verb = "gains" if difference.mean > 0 else "loses"
    return f"{verb} {points} points{NOT_RESOLVED if doubt else ''}"


def _speed(versus: Versus) -> str:
    interval = versus.time_interval
    doubt = interval is not None and interval[0] <= 1 <= interval[1]
    return _times(versus.time_ratios, "faster", "slower", "as fast", NOT_RESOLVED if doubt else "")


def _flops(ratios: Sequence[float]) -> str:
    return _times(ratios, "fewer FLOPs", "more FLOPs", "as many FLOPs", "")


def _times(ratios: Sequence[float], above: str, below: str, same: str, doubt: str) -> str:
    ratio = geometric_mean(ratios)
    if f"{ratio:.2f}" == "1.00":
        return same
    return f"{max(ratio, 1 / ratio):.2f}× {above if ratio > 1 else below}{doubt}"
