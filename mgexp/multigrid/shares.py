"""How the shapes of the long cycle share the stages of the learning rate.

In the paper they share every stage. That they share all of training, each in one piece, is ours: progressive
resizing of images does so (EfficientNetV2, ICML 2021, arxiv.org/abs/2104.00298, with one stage).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from mgexp.multigrid.order import in_turn
from mgexp.multigrid.recipe import CyclePer

LEAST_SHARE = 1e-9
"""Of all epochs. What is shorter is left out: it lies between two boundaries that are one, but for rounding."""


@dataclass(frozen=True)
class Share:
    """A stay at the shape of number ``shape`` in a stage: its part of the steps, in ``epochs`` of the recipe."""

    stage: int
    shape: int
    epochs: float


def shape_shares(
    durations: Sequence[float],
    num_shapes: int,
    per: CyclePer,
    in_order: Callable[..., tuple[int, ...]] = in_turn,
) -> list[Share]:
    """What each shape gets of stages of ``durations`` epochs, in order; in all, every shape gets the same.

    "stage": an equal part of each stage. "training": an equal part of the stages taken together, cut where one
    stage ends and the next begins. ``in_order``: one of ``ORDERS``, asked for each stage, or once.
    """
    if per == "stage":
        return [
            Share(stage, shape, duration / num_shapes)
            for stage, duration in enumerate(durations)
            for shape in in_order(num_shapes, stage)
        ]
    total = sum(durations)
    bounds = [total * place / num_shapes for place in range(num_shapes + 1)]
    ends = [*accumulate(durations)]
    shares = [
        Share(stage, shape, min(end, bounds[place + 1]) - max(end - duration, bounds[place]))
        for stage, (duration, end) in enumerate(zip(durations, ends, strict=True))
        for place, shape in enumerate(in_order(num_shapes, 0))
    ]
    return [share for share in shares if share.epochs > LEAST_SHARE * total]
