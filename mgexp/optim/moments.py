"""How fast LAMB's moments forget, and what is left of their start at zero.

**Periodical moments decay** (PMD-LAMB, LargeDet, ECCV 2020) as it is described: in each period of 200 steps a
coefficient goes from 1 to 0 and multiplies the decay rates of both moments, so that the accumulated moments weigh
less and less in the update; then it starts again. The published curve and equations were not at hand, and this is
our reading, not a reproduction: the coefficient c is 1 in the first step of a period and 0 in its last, on a
cosine or a line between; a moment m of a gradient g becomes cβ·m + (1 − cβ)·g, so that its weights still sum
to 1 but for the start; and a new period goes on from the moments that the last one ended with.

With a period of one step c is always 1, and nothing is left but LAMB.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from operator import mul
from typing import Literal

Curve = Literal["cosine", "linear"]

CURVES: dict[Curve, Callable[[float], float]] = {
    "cosine": lambda position: (1 + math.cos(math.pi * position)) / 2,
    "linear": lambda position: 1 - position,
}
"""From the position in a period, 0 in its first step and 1 in its last, to the coefficient."""


def coefficient(step: int, period: int, curve: Curve) -> float:
    """That of the ``step``-th step, from 0, where a period has ``period`` steps."""
    return CURVES[curve](step % period / max(1, period - 1))


def weight_of_start(beta: float, num_steps: int, period: int, curve: Curve) -> float:
    """The weight that a moment's start has in it after ``num_steps`` steps: the product of their decay rates.

    β^num_steps where the coefficient is always 1. A moment that started at zero is too small by 1 minus this,
    whatever the rates were: the weights of its gradients sum to that.
    """
    products = _products(beta, period, curve)
    periods, rest = divmod(num_steps, period)
    return products[period] ** periods * products[rest]


@cache
def _products(beta: float, period: int, curve: Curve) -> tuple[float, ...]:
    """Of the first 0, 1, … ``period`` decay rates of a period."""
    rates = (beta * coefficient(step, period, curve) for step in range(period))
    return (1.0, *accumulate(rates, mul))
