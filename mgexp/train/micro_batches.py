"""How a mini-batch that does not fit into memory is cut: into whole BN groups, so that the result is the same."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from mgexp.plan.step_shapes import StepShape


@dataclass(frozen=True)
class MicroBatch:
    """Clips [first, first + clips) of a process's mini-batch, in ``num_bn_groups`` whole groups."""

    first: int
    clips: int
    num_bn_groups: int


def split(clips: int, num_bn_groups: int, max_clips: int) -> tuple[MicroBatch, ...]:
    """A mini-batch of one process in as few parts of at most ``max_clips`` as possible; 0: in one.

    Parts differ by one group at most. Raises ValueError where a group alone is larger, or spans processes.
    """
    if not max_clips or clips <= max_clips:
        return (MicroBatch(0, clips, num_bn_groups),)
    if num_bn_groups < 0:
        raise ValueError(
            f"{clips} clips cannot be cut: one BN group spans {-num_bn_groups} processes"
        )
    size = clips // num_bn_groups
    if size > max_clips:
        raise ValueError(f"a BN group of {size} clips cannot be cut")
    num_parts = math.ceil(num_bn_groups / (max_clips // size))
    edges = [part * num_bn_groups // num_parts for part in range(num_parts + 1)]
    return tuple(
        MicroBatch(start * size, (end - start) * size, end - start)
        for start, end in pairwise(edges)
    )


def split_problems(shapes: Iterable[StepShape], max_clips: int) -> Iterator[str]:
    """Shapes whose mini-batches cannot be cut into parts of ``max_clips``."""
    for shape in shapes:
        try:
            split(shape.clips, shape.num_bn_groups, max_clips)
        except ValueError as error:
            yield (
                f"TRAIN.MAX_CLIPS_PER_GPU = {max_clips} is too few for {shape}: {error}; raise it to "
                f"{least_clips(shape)} or more, or set MULTIGRID.BN_BASE_SIZE lower"
            )


def least_clips(shape: StepShape) -> int:
    """The fewest clips that a part of a mini-batch of ``shape`` can have."""
    return shape.clips // max(1, shape.num_bn_groups)
