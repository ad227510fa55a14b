"""Names beside what they name: each is put where it hides no other name, no point and no edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from numpy.typing import NDArray

from mgexp.figures.style import ink

Boxes = NDArray[Any]
Place = tuple[int, tuple[float, float, str, str]]
"""Points from what is named, and (right, up, horizontal, vertical alignment)."""

MARK_POINTS = 3.0
"""Half the width of a point that is kept free."""
DIRECTIONS = (
    *((0, 1, "center", "bottom"), (0, -1, "center", "top")),
    *((1, 0, "left", "center"), (-1, 0, "right", "center")),
    *((0.7, 0.7, "left", "bottom"), (-0.7, 0.7, "right", "bottom")),
    *((0.7, -0.7, "left", "top"), (-0.7, -0.7, "right", "top")),
    *((0.2, 1, "left", "bottom"), (-0.2, 1, "right", "bottom")),
    *((0.2, -1, "left", "top"), (-0.2, -1, "right", "top")),
)
DISTANCES_POINTS = (5, 9, 14, 20, 28, 38, 50, 64)
PLACES: tuple[Place, ...] = tuple(product(DISTANCES_POINTS, DIRECTIONS))
"""Where a name may stand; the first of the best is taken."""
SHARES = {"left": 0.0, "bottom": 0.0, "center": 0.5, "right": 1.0, "top": 1.0}
"""Of a name's width or height, what lies before the place it is aligned to."""
LEADER_POINTS = 9
"""A name that is further from its point than this has a line to it."""
PASSES = 3
"""How often each name is placed, clear of where all others are by then. Assumption: later passes move none."""
PARTS = 24
"""Of a line that is kept free. Assumption: a part is no longer than a name is high."""


@dataclass(frozen=True)
class Label:
    """``text`` for the point (``x``, ``y``) of the axes' data."""

    text: str
    x: float
    y: float
    colour: str


def place_labels(
    axes: Axes, labels: Sequence[Label], points: Sequence[tuple[float, float]] = ()
) -> None:
    """Write each label near its point, hiding as little as can be of ``points`` and of what is written already.

    Neither do lines to labels cross other labels, where that can be. The figure must be laid out for good.
    """
    kept_free = [_mark(axes, x, y) for x, y in (*points, *((one.x, one.y) for one in labels))]
    written = [np.array(one.get_window_extent().extents) for one in axes.texts]
    candidates = [_Candidates.of(axes, label) for label in labels]
    chosen: dict[int, int] = {}
    for number in [*range(len(labels))] * PASSES:
        others = [(candidates[n], at) for n, at in chosen.items() if n != number]
        words = [*written, *(one.boxes[at] for one, at in others)]
        lines = [mark for one, at in others for mark in one.leaders[at]]
        chosen[number] = candidates[number].best(axes, words, [*kept_free, *lines])
    for number, label in enumerate(labels):
        _annotate(axes, label, PLACES[chosen[number]])


@dataclass(frozen=True)
class _Candidates:
    """The pixels that a label would cover at each of PLACES, (P, 4), and its line to the point, (P, PARTS, 4)."""

    boxes: Boxes
    leaders: Boxes

    @classmethod
    def of(cls, axes: Axes, label: Label) -> _Candidates:
        """Those of a label; a line that is not drawn covers nothing."""
        boxes, mark = _boxes(axes, label), _mark(axes, label.x, label.y)
        centers = np.tile((boxes[:, :2] + boxes[:, 2:]) / 2, 2)
        shares = np.arange(PARTS)[:, None] / PARTS
        reach = np.array([distance > LEADER_POINTS for distance, _ in PLACES])
        marks = mark + shares * (centers - np.tile((mark[:2] + mark[2:]) / 2, 2))[:, None]
        return cls(boxes, marks * reach[:, None, None])

    def best(self, axes: Axes, words: Sequence[Boxes], kept_free: Sequence[Boxes]) -> int:
        """The first of the places where least is hidden; lines may hide all but words."""
        hidden = _hidden(self.boxes, np.array([*words, *kept_free]))
        if words:
            crossed = _hidden(self.leaders.reshape(-1, 4), np.array(words))
            hidden = hidden + crossed.reshape(-1, PARTS).sum(-1)
        return int(np.argmin(hidden + _outside(self.boxes, axes)))


def along(line: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points on a line through the points of data ``line``, close enough that no name fits between them."""
    return [
        (x0 + (x1 - x0) * part / PARTS, y0 + (y1 - y0) * part / PARTS)
        for (x0, y0), (x1, y1) in pairwise(line)
        for part in range(PARTS + 1)
    ]


def _dots_per_point(axes: Axes) -> float:
    return float(axes.get_figure(root=True).dpi / 72)  # type: ignore[union-attr]


def _mark(axes: Axes, x: float, y: float) -> Boxes:
    """The pixels of a point, (4,): left, bottom, right, top."""
    at = np.tile(axes.transData.transform((x, y)), 2)
    return np.asarray(at + MARK_POINTS * _dots_per_point(axes) * np.array([-1, -1, 1, 1]))


def _boxes(axes: Axes, label: Label) -> Boxes:
    """The pixels that a label would cover at each of PLACES, (P, 4)."""
    written = _annotate(axes, label, PLACES[0])
    size = np.array(written.get_window_extent().size) + 2
    written.remove()
    x, y = axes.transData.transform((label.x, label.y))
    found = []
    for distance, (right, up, horizontal, vertical) in PLACES:
        offset = distance * _dots_per_point(axes)
        left = x + offset * right - SHARES[horizontal] * size[0]
        bottom = y + offset * up - SHARES[vertical] * size[1]
        found.append((left, bottom, left + size[0], bottom + size[1]))
    return np.array(found)


def _annotate(axes: Axes, label: Label, place: Place) -> Annotation:
    distance, (right, up, horizontal, vertical) = place
    line = {"arrowstyle": "-", "color": ink(label.colour), "lw": 0.5, "shrinkA": 0, "shrinkB": 3}
    return axes.annotate(
        label.text,
        (label.x, label.y),
        xytext=(distance * right, distance * up),
        textcoords="offset points",
        ha=horizontal,
        va=vertical,
        color=ink(label.colour),
        arrowprops=line if distance > LEADER_POINTS else None,
        annotation_clip=False,
        zorder=6,
    )


def _hidden(boxes: Boxes, kept_free: Boxes) -> Boxes:
    """Square pixels of what is kept free, (K, 4), below each box, (P, 4): (P,)."""
    low = np.maximum(boxes[:, None, :2], kept_free[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], kept_free[None, :, 2:])
    return np.asarray(np.clip(high - low, 0, None).prod(-1).sum(-1))


def _outside(boxes: Boxes, axes: Axes) -> Boxes:
    """Square pixels of each box beyond the axes, (P,), which count more: they may be another panel's."""
    edge = np.array([axes.get_window_extent().extents])
    area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    return np.asarray(4 * (area - _hidden(boxes, edge)))
