"""The mini-batch shapes that a schedule passes through, and the order in which it takes them.

A mini-batch holds ``ratio * B`` clips of ``frames`` × ``crop`` × ``crop``. The ratio keeps the work
of a step constant: ratio * frames * crop² = T * S² (paper, section 3; Fig. 2), or with ``ClipCosts``
ratio * cost(frames, crop) = cost(T, S). With a largest ratio, steps of coarser shapes do less work,
and training takes more steps for the same clips.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

# The released code rounds the ratio without a message. With a larger relative error, the steps
# would no longer cost about the same, so such a shape is an error here.
MAX_RATIO_ERROR = 0.05

FULL: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
"""The long cycle of a baseline: one shape, the full one."""

LONG_FACTORS = ((0.25, 0.5**0.5), (0.5, 0.5**0.5), (0.5, 1.0), (1.0, 1.0))
"""The paper's long cycle: (frames, crop) relative to the full shape."""

SHORT_FACTORS = (0.5, 0.5**0.5)
"""The paper's short cycle: crops relative to the full crop. The third crop of the cycle is the
phase's own."""

CropBase = Literal["full", "phase"]
ShapeOrder = Literal["coarse_to_fine", "random"]


@dataclass(frozen=True)
class BatchShape:
    """Shape of a mini-batch: ``ratio`` times the baseline's clips, each frames × crop × crop."""

    frames: int
    crop: int
    ratio: float

    def clips(self, baseline: int) -> int:
        # The product is whole: `phases._parts` allows only halves and quarters that divide the baseline's clips,
        # and floats hold those exactly.
        return int(baseline * self.ratio)


@dataclass(frozen=True)
class ClipCosts:
    """What a clip costs at each (frames, crop), in units of ``name``, such as multiply-accumulates."""

    name: str
    # Pairs in place of a dict, because frozen settings are hashed, and a dict cannot be.
    by_size: tuple[tuple[tuple[int, int], int], ...]

    def of(self, frames: int, crop: int) -> int:
        """Return the cost of a clip. Raises ValueError if it is unknown."""
        cost = dict(self.by_size).get((frames, crop))
        if not cost:
            raise ValueError(f"the cost of a clip of {frames} x {crop}² in {self.name} is unknown")
        return cost


@dataclass(frozen=True)
class Cycle:
    """The shapes that the mini-batches of a phase take in turn, largest batch first.

    ``base`` is the shape that the long cycle gives the phase.
    """

    base: BatchShape
    shapes: tuple[BatchShape, ...]

    @property
    def mean_ratio(self) -> float:
        """Return the mean number of clips over one turn, relative to the baseline's."""
        return sum(shape.ratio for shape in self.shapes) / len(self.shapes)


def long_cycle(
    frames: int,
    crop: int,
    long_factors: Sequence[tuple[float, float]] = FULL,
    short_factors: Sequence[float] = (),
    short_crops_of: CropBase = "full",
    max_ratio: int | None = None,
    costs: ClipCosts | None = None,
    parts: Sequence[int] = (1,),
) -> tuple[Cycle, ...]:
    """Return the cycle of each base shape of the long cycle, in its order.

    ``long_factors`` are (temporal, spatial) factors of the full shape. A pair that is given twice
    gets twice the steps. ``short_factors`` multiply the full crop (as in the paper and the released
    code), or the phase's own crop. No shape takes more than ``max_ratio`` times the baseline's
    clips. The ratios keep the pixels of a step constant, or its ``costs``. They are rounded to the first of
    ``parts`` that is near enough: 1 stands for whole numbers, 4 for quarters. Raises a ValueError that lists every
    impossible shape.
    """
    problems: list[str] = []
    cycles = []

    def batch_shape(size: tuple[float, float]) -> BatchShape:
        return _batch_shape((frames, crop), size, costs, parts, problems)

    def limited(shape: BatchShape) -> BatchShape:
        return replace(shape, ratio=min(shape.ratio, max_ratio or shape.ratio))

    for sizes in _sizes(frames, crop, long_factors, short_factors, short_crops_of):
        *short, base = map(batch_shape, sizes)
        # The largest batch comes first, as in the released code. The sort is stable, so equal
        # batches keep this order. A limit does not change the order: coarse crops still come first.
        ordered = sorted([*short, base], key=lambda shape: -shape.ratio)
        cycles.append(Cycle(limited(base), tuple(limited(shape) for shape in ordered)))
    if problems:
        # Cycles share shapes, so a problem may have come several times.
        raise ValueError("; ".join(dict.fromkeys(problems)))
    return tuple(cycles)


def clip_sizes(
    frames: int,
    crop: int,
    long_factors: Sequence[tuple[float, float]] = FULL,
    short_factors: Sequence[float] = (),
    short_crops_of: CropBase = "full",
) -> set[tuple[int, int]]:
    """Return the (frames, crop) of all clips of ``long_cycle``, rounded, without their ratios."""
    of_cycles = _sizes(frames, crop, long_factors, short_factors, short_crops_of)
    return {(max(1, round(t)), max(1, round(s))) for sizes in of_cycles for t, s in sizes}


def _sizes(
    frames: int,
    crop: int,
    long_factors: Sequence[tuple[float, float]],
    short_factors: Sequence[float],
    short_crops_of: CropBase,
) -> Iterator[list[tuple[float, float]]]:
    """Yield (frames, crop) before rounding of the clips of each cycle; the base comes last."""
    for temporal, spatial in long_factors:
        t, s = temporal * frames, spatial * crop
        reference = crop if short_crops_of == "full" else s
        yield [*((t, factor * reference) for factor in short_factors), (t, s)]


def _batch_shape(
    full: tuple[int, int],
    size: tuple[float, float],
    costs: ClipCosts | None,
    parts: Sequence[int],
    problems: list[str],
) -> BatchShape:
    """Round a ``size`` of frames and crop to a batch shape; add what is wrong with it to ``problems``."""
    (full_frames, full_crop), (frames, crop) = full, size
    whole_frames = max(1, round(frames))
    if not math.isclose(whole_frames, frames) or full_frames % whole_frames:
        problems.append(
            f"{full_frames} frames cannot be cut to {frames:g}: a coarse clip takes a whole fraction of "
            "recipe.frames, see multigrid.long_factors"
        )
    if round(crop) < 1:
        problems.append(
            f"a crop of {crop:g} pixels rounds to none: raise recipe.crop, now {full_crop}, or "
            "the factors of the cycles"
        )
    # This shape is reported above, and its ratio might overflow.
    if round(crop) < 1 or frames < 0.5:
        return BatchShape(whole_frames, 1, 1)
    # The ratio uses the crop before rounding: 224/√2 pixels give exactly 2, whereas 158 pixels give 2.01.
    of_pixels = exact = full_frames * full_crop**2 / (frames * crop**2)
    if costs is not None:
        exact = costs.of(*full) / costs.of(whole_frames, round(crop))
    for num in parts:
        # No shape takes fewer clips than the baseline. Measured seconds may say that another shape is dearer
        # than the full one, and then its step just lasts longer.
        ratio = max(1.0, round(exact * num) / num)
        if abs(ratio - exact) <= MAX_RATIO_ERROR * exact:
            break
    else:
        rounded = "a whole number" if parts[-1] == 1 else f"a multiple of 1/{parts[-1]}"
        remedy = ""
        if costs is not None:
            remedy = f", or let multigrid.costs count pixels, where it needs {of_pixels:.4g}"
            if parts[-1] < 4:
                remedy += (
                    ", or set recipe.clips to 4 BN groups (4 clips without groups), for quarters"
                )
        problems.append(
            f"a shape of {frames:g} frames x {crop:g} pixels needs {exact:.3f} times the clips: "
            f"more than {MAX_RATIO_ERROR:.0%} from {rounded}, see multigrid.long_factors and "
            f"multigrid.short_factors{remedy}"
        )
    return BatchShape(whole_frames, round(crop), ratio)


def in_turn(num: int, *_: int) -> tuple[int, ...]:
    """Return 0 … num − 1, the order in which the shapes are given, at every place."""
    return tuple(range(num))


def scrambled(num: int, *place: int) -> tuple[int, ...]:
    """Permute 0 … num − 1. The permutation follows from ``place`` alone, so it is the same in every run."""
    return tuple(sorted(range(num), key=lambda index: _hash(*place, index)))


ORDERS: dict[ShapeOrder, Callable[..., tuple[int, ...]]] = {
    # Source: paper, Fig. 2, and released code.
    "coarse_to_fine": in_turn,
    # The paper does not say how it draws. We permute, so that every shape gets its share of the
    # steps.
    "random": scrambled,
}
"""The order of ``num`` shapes at a place: (stage,) for the long cycle, (stage, turn) for the short one."""


def _hash(*numbers: int) -> int:
    """Mix ``numbers`` into 64 bits by SplitMix64 (Steele et al., 2014)."""
    # Python does not promise that its own hash() stays the same from version to version.
    value = 0
    for number in numbers:
        value = (value + number + 0x9E3779B97F4A7C15) % 2**64
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
        value ^= value >> 31
    return value


@dataclass(frozen=True)
class Turns:
    """Sequence of shapes in a phase of ``stage``: turn after turn, each through all ``shapes``."""

    shapes: tuple[BatchShape, ...]
    stage: int
    order: ShapeOrder

    def turn(self, number: int) -> tuple[BatchShape, ...]:
        return tuple(self.shapes[place] for place in self._places(number))

    def shape_at(self, offset: int) -> BatchShape:
        """Return the shape of the step that is ``offset`` steps after the first one of the phase."""
        number, position = divmod(offset, len(self.shapes))
        return self.turn(number)[position]

    def steps_by_shape(self, num_steps: int) -> list[tuple[BatchShape, int]]:
        """Count how many of the first ``num_steps`` steps have each shape, also if the last turn is incomplete."""
        turns, rest = divmod(num_steps, len(self.shapes))
        # Which shapes the last turn has begun depends on its own order, if every turn has another one.
        begun = self._places(turns)[:rest]
        return [(shape, turns + (place in begun)) for place, shape in enumerate(self.shapes)]

    def clips_before(self, num_steps: int, baseline: int) -> int:
        """Count the clips of the first ``num_steps`` steps, for so many clips of a step of the baseline."""
        counts = self.steps_by_shape(num_steps)
        return sum(shape.clips(baseline) * steps for shape, steps in counts)

    def _places(self, number: int) -> tuple[int, ...]:
        return ORDERS[self.order](len(self.shapes), self.stage, number)
