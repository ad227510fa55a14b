"""Shapes against figure 2 of the paper and the figures that the released code computes for Kinetics."""

from math import sqrt

import pytest
from recipes import LONG, SHORT

from mgexp.multigrid.shapes import BatchShape, long_cycle


def described(cycles):
    """[(frames, crop, ratio), …] of each cycle's mini-batches."""
    return [[(s.frames, s.crop, s.ratio) for s in cycle.shapes] for cycle in cycles]


def test_long_and_short_cycle_are_those_of_the_paper():
    # Figure 2(d): batches (16, 8, 8), (8, 4, 4), (8, 4, 2), (4, 2, 1) times the baseline's.
    assert described(long_cycle(32, 224, LONG, SHORT)) == [
        [(8, 112, 16), (8, 158, 8), (8, 158, 8)],
        [(16, 112, 8), (16, 158, 4), (16, 158, 4)],
        [(16, 112, 8), (16, 158, 4), (16, 224, 2)],
        [(32, 112, 4), (32, 158, 2), (32, 224, 1)],
    ]


def test_long_cycle_alone_has_one_shape_in_each_cycle():
    # Figure 2(b): 8B × T/4 × (H, W)/√2, 4B × T/2 × (H, W)/√2, 2B × T/2, B × T.
    assert described(long_cycle(32, 224, LONG)) == [
        [(8, 158, 8)],
        [(16, 158, 4)],
        [(16, 224, 2)],
        [(32, 224, 1)],
    ]


def test_short_cycle_alone_keeps_the_frames():
    # Figure 2(c): 4B × H/2, 2B × H/√2, B × H.
    assert described(long_cycle(32, 224, short_factors=SHORT)) == [
        [(32, 112, 4), (32, 158, 2), (32, 224, 1)]
    ]


def test_baseline_has_one_shape():
    assert described(long_cycle(32, 224)) == [[(32, 224, 1)]]


def test_short_crops_can_be_those_of_the_phase():
    # 224/√2 = 158.4, its half 79.2 and its 1/√2 112: 8, 4 and 2 times fewer pixels; frames: 4 times.
    cycles = long_cycle(32, 224, LONG, SHORT, short_crops_of="phase")
    assert described(cycles)[0] == [(8, 79, 32), (8, 112, 16), (8, 158, 8)]
    assert described(cycles)[3] == [(32, 112, 4), (32, 158, 2), (32, 224, 1)]


def test_largest_batch_comes_first_whatever_the_order_of_the_factors():
    assert long_cycle(32, 224, LONG, SHORT[::-1]) == long_cycle(32, 224, LONG, SHORT)


def test_base_is_the_shape_of_the_long_cycle():
    assert [cycle.base for cycle in long_cycle(32, 224, LONG, SHORT)] == [
        BatchShape(8, 158, 8),
        BatchShape(16, 158, 4),
        BatchShape(16, 224, 2),
        BatchShape(32, 224, 1),
    ]


@pytest.mark.parametrize(("crop", "coarse"), [(224, 158), (112, 79), (64, 45), (96, 68)])
def test_crops_round_to_the_nearest_pixel(crop, coarse):
    # crop/√2 = 158.39, 79.20, 45.25, 67.88
    assert long_cycle(8, crop, LONG)[0].base.crop == coarse


def test_mean_ratios_are_those_of_the_released_code():
    means = [cycle.mean_ratio for cycle in long_cycle(32, 224, LONG, SHORT)]
    assert means == pytest.approx([32 / 3, 16 / 3, 14 / 3, 7 / 3])


@pytest.mark.parametrize(
    ("frames", "factor", "shown"), [(10, 0.25, "2.5"), (12, 2 / 3, "8"), (2, 0.25, "0.5")]
)
def test_frames_that_do_not_divide_are_an_error(frames, factor, shown):
    with pytest.raises(ValueError, match=rf"{frames} frames cannot be cut to {shown}:"):
        long_cycle(frames, 224, [(factor, 1.0), (1.0, 1.0)])


def test_ratio_far_from_a_whole_number_is_an_error():
    # 1 / 0.8² = 1.5625
    with pytest.raises(ValueError, match=r"32 frames x 179\.2 pixels needs 1\.562 times the clips"):
        long_cycle(32, 224, [(1.0, 0.8), (1.0, 1.0)])


@pytest.mark.parametrize(("exact", "whole"), [(2.09, 2), (1.92, 2), (2.89, 3)])
def test_ratio_within_five_percent_is_rounded(exact, whole):
    assert long_cycle(8, 1000, [(1.0, 1 / sqrt(exact))])[0].base.ratio == whole


@pytest.mark.parametrize("exact", [2.11, 1.88, 2.84])
def test_ratio_further_than_five_percent_is_not(exact):
    with pytest.raises(ValueError, match=f"needs {exact:.3f} times the clips"):
        long_cycle(8, 1000, [(1.0, 1 / sqrt(exact))])


def test_every_impossible_shape_is_in_one_message():
    with pytest.raises(ValueError, match=r"cut to 2\.5.*needs 1\.562 times"):
        long_cycle(10, 224, [(0.25, 1.0), (1.0, 0.8)])


def test_impossible_short_crops_are_an_error():
    with pytest.raises(ValueError, match=r"needs 1\.235 times the clips"):
        long_cycle(32, 224, short_factors=[0.9])


def test_a_shape_twice_in_turn_is_an_error():
    with pytest.raises(
        ValueError, match="LONG_CYCLE_FACTORS has the shape 16 frames x 224 pixels twice"
    ):
        long_cycle(32, 224, [(0.5, 1.0), (0.5, 1.0), (1.0, 1.0)])


def test_a_shape_may_come_again_later():
    cycles = long_cycle(32, 224, [(0.5, 1.0), (1.0, 1.0), (0.5, 1.0), (1.0, 1.0)])
    assert [cycle.base.frames for cycle in cycles] == [16, 32, 16, 32]


@pytest.mark.parametrize(
    "factors", [(1e-300, 1.0), (1.0, 1e-300), (1e-200, 1e-200), (5e-324, 5e-324)]
)
def test_factors_next_to_nothing_are_an_error_and_no_overflow(factors):
    with pytest.raises(ValueError, match=r"cannot be cut|rounds to none"):
        long_cycle(32, 224, [factors, (1.0, 1.0)])
