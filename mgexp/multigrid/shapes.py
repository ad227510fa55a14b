"""Which mini-batch shapes a schedule passes through.

A mini-batch holds ``ratio * B`` clips of ``frames`` × ``crop`` × ``crop``; the ratio keeps the work of a
step constant: ratio * frames * crop² = T * S² (paper, section 3; Fig. 2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

# The released code rounds the ratio silently; further off than this, steps would no longer cost the same.
MAX_RATIO_ERROR = 0.05

FULL: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
"""The long cycle of a baseline: one shape, the full one."""

LONG_FACTORS = ((0.25, 0.5**0.5), (0.5, 0.5**0.5), (0.5, 1.0), (1.0, 1.0))
"""The paper's long cycle: (frames, crop) relative to the full shape."""

SHORT_FACTORS = (0.5, 0.5**0.5)
"""The paper's short cycle: crops relative to the full crop; the third is the phase's own."""

CropBase = Literal["full", "phase"]


@dataclass(frozen=True)
class BatchShape:
    """One mini-batch relative to the baseline's: ``ratio`` times its clips, each frames × crop × crop pixels."""

    frames: int
    crop: int
    ratio: int


@dataclass(frozen=True)
class Cycle:
    """The shapes that the mini-batches of a phase take in turn, largest batch first.

    ``base`` is the phase's own shape, the long cycle's.
    """

    base: BatchShape
    shapes: tuple[BatchShape, ...]

    @property
    def mean_ratio(self) -> float:
        """Mean clips of a mini-batch over one turn of the cycle, relative to the baseline's."""
        return sum(shape.ratio for shape in self.shapes) / len(self.shapes)


def long_cycle(
    frames: int,
    crop: int,
    long_factors: Sequence[tuple[float, float]] = FULL,
    short_factors: Sequence[float] = (),
    short_crops_of: CropBase = "full",
) -> tuple[Cycle, ...]:
    """Cycles of the long cycle's base shapes, in its order.

    ``long_factors`` are (temporal, spatial) factors of the full shape, ``short_factors`` crop factors of
    the full crop (the paper's and the released code's reading) or of the phase's own crop.
    Raises ValueError that lists every shape which is not possible.
    """
    problems: list[str] = []
    cycles = []
    for temporal, spatial in long_factors:
        t, s = temporal * frames, spatial * crop
        reference = crop if short_crops_of == "full" else s
        base = _batch_shape(frames, crop, t, s, problems)
        short = [_batch_shape(frames, crop, t, f * reference, problems) for f in short_factors]
        ordered = sorted([*short, base], key=lambda shape: -shape.ratio)
        cycles.append(Cycle(base, tuple(ordered)))
    for one, two in pairwise(cycles):
        if one == two:
            problems.append(
                f"MULTIGRID.LONG_CYCLE_FACTORS has the shape {one.base.frames} frames x {one.base.crop} pixels "
                "twice in turn: leave one of them out"
            )
    if problems:
        raise ValueError("; ".join(dict.fromkeys(problems)))
    return tuple(cycles)


def _batch_shape(
    full_frames: int, full_crop: int, frames: float, crop: float, problems: list[str]
) -> BatchShape:
    """The batch shape nearest to real-valued ``frames`` and ``crop``; what is impossible goes to ``problems``."""
    whole_frames = max(1, round(frames))
    if not math.isclose(whole_frames, frames) or full_frames % whole_frames:
        problems.append(
            f"{full_frames} frames cannot be cut to {frames:g}: a coarse clip takes a whole fraction of "
            "DATA.NUM_FRAMES, see MULTIGRID.LONG_CYCLE_FACTORS"
        )
    if round(crop) < 1:
        problems.append(
            f"a crop of {crop:g} pixels rounds to none: raise DATA.TRAIN_CROP_SIZE, now {full_crop}, or "
            "the factors of the cycles"
        )
    if round(crop) < 1 or frames < 0.5:  # the ratio of what is left may be too large for a number
        return BatchShape(whole_frames, 1, 1)
    exact = full_frames * full_crop**2 / (frames * crop**2)
    ratio = max(1, round(exact))
    if abs(ratio - exact) > MAX_RATIO_ERROR * exact:
        problems.append(
            f"a shape of {frames:g} frames x {crop:g} pixels needs {exact:.3f} times the clips: "
            f"more than {MAX_RATIO_ERROR:.0%} from a whole number, see MULTIGRID.LONG_CYCLE_FACTORS and "
            "MULTIGRID.SHORT_CYCLE_FACTORS"
        )
    return BatchShape(whole_frames, round(crop), ratio)
