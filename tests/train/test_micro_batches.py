"""Mini-batches are cut into whole BN groups."""

import pytest

from mgexp.multigrid.steps import StepShape
from mgexp.train.step import MicroBatch, split, split_problems


@pytest.mark.parametrize(
    ("clips", "groups", "max_clips", "parts"),
    [
        (64, 8, 0, [(0, 64, 8)]),
        (64, 8, 64, [(0, 64, 8)]),
        (64, 8, 63, [(0, 32, 4), (32, 32, 4)]),
        (64, 8, 24, [(0, 16, 2), (16, 24, 3), (40, 24, 3)]),
        (64, 8, 8, [(first, 8, 1) for first in range(0, 64, 8)]),
        (6, 3, 5, [(0, 2, 1), (2, 4, 2)]),
        (8, -2, 8, [(0, 8, -2)]),
    ],
)
def test_parts_are_whole_groups(clips, groups, max_clips, parts):
    assert split(clips, groups, max_clips) == tuple(MicroBatch(*part) for part in parts)


@pytest.mark.parametrize(
    ("groups", "said"), [(1, "BN group of 64 clips"), (-2, "one BN group spans 2 processes")]
)
def test_what_cannot_be_cut_is_refused(groups, said):
    with pytest.raises(ValueError, match=said):
        split(64, groups, 32)


def test_problems_name_the_shape_and_the_remedy():
    shapes = [StepShape(8, 112, 64, 2), StepShape(8, 112, 64, 8)]
    (problem,) = split_problems(shapes, 16)
    assert "TRAIN.MAX_CLIPS_PER_GPU = 16 is too few for 64x8x112²" in problem
    assert "raise it to 32 or more" in problem
