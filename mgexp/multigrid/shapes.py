"""The mini-batch shapes that a schedule passes through, and the order in which it takes them.

A mini-batch holds ``ratio * B`` clips of ``frames`` × ``crop`` × ``crop``. The ratio keeps the work
of a step constant: ratio * frames * crop² = T * S² (paper, section 3; Fig. 2), or with ``ClipCosts``
ratio * cost(frames, crop) = cost(T, S). With a largest ratio, steps of coarser shapes do less work,
and training takes more steps for the same clips.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from mgexp.multigrid.recipe import Multigrid, Recipe, ShapeOrder

# The released code rounds the ratio without a message. With a larger relative error, the steps
# would no longer cost about the same, so such a shape is an error here.
MAX_RATIO_ERROR = 0.05


@dataclass(frozen=True)
class BatchShape:
    """Shape of a mini-batch: ``clips``, ``ratio`` times as many as the baseline's, each frames × crop × crop."""

    frames: int
    crop: int
    clips: int
    ratio: float


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


def long_cycle(recipe: Recipe, multigrid: Multigrid) -> tuple[Cycle, ...]:
    """Return the cycle of each base shape of the long cycle, in its order.

    A pair of factors that is given twice gets twice the steps. Raises a ValueError that lists every impossible
    shape.
    """
    problems: list[str] = []
    cycles = []

    def batch_shape(frames: int, crop: int, ratio: float) -> BatchShape:
        ratio = min(ratio, multigrid.max_batch_ratio or ratio)
        # The product is whole: `_parts` allows only halves and quarters that divide the baseline's clips, and
        # floats hold those exactly.
        return BatchShape(frames, crop, int(recipe.clips * ratio), ratio)

    for sizes in multigrid.exact_sizes(recipe.frames, recipe.crop):
        *short, base = (_rounded(size, recipe, multigrid, problems) for size in sizes)
        # The largest batch comes first, as in the released code. The sort is stable, so equal
        # batches keep this order. A limit does not change the order: coarse crops still come first.
        ordered = sorted([*short, base], key=lambda rounded: -rounded[2])
        cycles.append(Cycle(batch_shape(*base), tuple(batch_shape(*one) for one in ordered)))
    if problems:
        # Cycles share shapes, so a problem may have come several times.
        raise ValueError("; ".join(dict.fromkeys(problems)))
    return tuple(cycles)


def _rounded(
    size: tuple[float, float], recipe: Recipe, multigrid: Multigrid, problems: list[str]
) -> tuple[int, int, float]:
    """Round frames and crop, and return them with the ratio; add what is wrong with them to ``problems``."""
    (frames, crop), costs, parts = size, multigrid.costs, _parts(recipe, multigrid)
    whole_frames = max(1, round(frames))
    if not math.isclose(whole_frames, frames) or recipe.frames % whole_frames:
        problems.append(
            f"{recipe.frames} frames cannot be cut to {frames:g}: a coarse clip takes a whole fraction of "
            "recipe.frames, see multigrid.long_factors"
        )
    if round(crop) < 1:
        problems.append(
            f"a crop of {crop:g} pixels rounds to none: raise recipe.crop, now {recipe.crop}, or "
            "the factors of the cycles"
        )
    # This shape is reported above, and its ratio might overflow.
    if round(crop) < 1 or frames < 0.5:
        return whole_frames, 1, 1
    # The ratio uses the crop before rounding: 224/√2 pixels give exactly 2, whereas 158 pixels give 2.01.
    of_pixels = exact = recipe.frames * recipe.crop**2 / (frames * crop**2)
    if costs is not None:
        exact = costs.of(recipe.frames, recipe.crop) / costs.of(whole_frames, round(crop))
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
    return whole_frames, round(crop), ratio


def _parts(recipe: Recipe, multigrid: Multigrid) -> tuple[int, ...]:
    """Return into how many parts the baseline's clips may be divided, of which a mini-batch takes any number.

    Several numbers are alternatives: the first that is near enough counts. With 1 the ratios are whole numbers,
    and with 4 they are quarters.
    """
    size = multigrid.bn_base_size
    if size == 0:
        # Quarters leave an even number of clips at all shapes to processes of 8 clips or more, as mixup needs.
        quarters = math.gcd(recipe.clips, 4)
        return (1, quarters) if multigrid.costs is None else (quarters,)
    # The shapes of the paper have whole ratios of pixels. Those of costs may need a part of the BN groups.
    if multigrid.costs is None:
        return (1,)
    return (1, *(num for num in (2, 4) if recipe.clips % (num * size) == 0))


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

    def clips_before(self, num_steps: int) -> int:
        """Count the clips of the first ``num_steps`` steps."""
        return sum(shape.clips * steps for shape, steps in self.steps_by_shape(num_steps))

    def _places(self, number: int) -> tuple[int, ...]:
        return ORDERS[self.order](len(self.shapes), self.stage, number)
