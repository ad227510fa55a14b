"""How fast LAMB's moments forget.

**Periodical moments decay** (PMD-LAMB, named in the abstract of LargeDet, ECCV 2020), as it was described to us:
in each period of 200 steps a coefficient goes from 1 to 0 and multiplies the decay rates of both moments, so
that the accumulated moments weigh less and less in the update; then it starts again. The published equations,
curve and period were not at hand. So this is our reading, not a reproduction:

- the coefficient c is 1 in the first step of a period and 0 in its last, on a cosine or a line between;
- a moment m of a gradient g becomes cβ·m + (1 − cβ)·g, so that its weights sum to 1 but for the start;
- a new period starts as a run does: moments at zero, and corrected for that. The last step of a period has left
  of them its own gradient alone; to go on from that would give one mini-batch most of the weight in v for the next
  30 steps (β₂ = 0.999, cosine).

Without a period c is always 1, and nothing is left but LAMB.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

Curve = Literal["cosine", "linear"]

CURVES: dict[Curve, Callable[[float], float]] = {
    "cosine": lambda position: (1 + math.cos(math.pi * position)) / 2,
    "linear": lambda position: 1 - position,
}
"""From the position in a period, 0 in its first step and 1 in its last, to the coefficient."""


def place(step: int, period: int | None) -> int:
    """Of the ``step``-th step, from 0: how many steps its period had before it."""
    return step if period is None else step % period


def coefficient(step: int, period: int | None, curve: Curve) -> float:
    """That of the ``step``-th step, from 0, where a period has ``period`` steps, 2 or more; 1 without periods."""
    return 1.0 if period is None else CURVES[curve](place(step, period) / (period - 1))
