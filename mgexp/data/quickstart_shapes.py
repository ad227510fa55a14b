"""Shapes of the quickstart videos as signed distances: below 0 inside, above 0 outside.

All are longer than wide, so that the angle at which one lies changes what each motion looks like.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Shape = Callable[[Array, Array], Array]
"""From coordinates (u, v), in half lengths of the shape along and across it, to distances in that unit."""


def draw_shape(rng: np.random.Generator) -> Shape:
    """A random kind of shape with a random width."""
    width = rng.uniform(0.32, 0.5)
    kinds = (_bar, _ellipse, _triangle, _ell, _key)
    kind = kinds[int(rng.integers(len(kinds)))]
    return lambda u, v: kind(u, v, width)


def _box(u: Array, v: Array, half_length: float, half_width: float) -> Array:
    distance: Array = np.maximum(np.abs(u) - half_length, np.abs(v) - half_width)
    return distance


def _bar(u: Array, v: Array, width: float) -> Array:
    return _box(u, v, 1.0, width)


def _ellipse(u: Array, v: Array, width: float) -> Array:
    # Right on the edge of the ends and the sides, and near enough between for a soft edge of a pixel.
    radius: Array = np.hypot(u, v / width)
    return (radius - 1) * width


def _triangle(u: Array, v: Array, width: float) -> Array:
    # The tip is at u = 1, the base at u = -0.8 and 2.8 times as long as `width`.
    slope = 1.4 * width / 1.8
    sides = (np.abs(v) + slope * (u - 1)) / math.hypot(1, slope)
    distance: Array = np.maximum(sides, -u - 0.8)
    return distance


def _ell(u: Array, v: Array, width: float) -> Array:
    stem = _box(u, v + 0.35, 1.0, 0.6 * width)
    foot = _box(u - (1 - 0.6 * width), v - 0.15, 0.6 * width, 0.65)
    distance: Array = np.minimum(stem, foot)
    return distance


def _key(u: Array, v: Array, width: float) -> Array:
    head = np.hypot(u - 0.45, v) - 0.55
    distance: Array = np.minimum(head, _box(u + 0.4, v, 0.6, 0.5 * width))
    return distance
