"""Shapes against figure 2 of the paper and the released code, and the order in which phases take them."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise, permutations
from math import sqrt

import pytest
from recipes import LONG, ROWS, SHORT, TINY

from mgexp.multigrid.phases import derive_phases
from mgexp.multigrid.recipe import FULL, ClipCosts, Multigrid
from mgexp.multigrid.schedule import build_schedule
from mgexp.multigrid.shapes import (
    BatchShape,
    Turns,
    _hash,
    long_cycle,
    scrambled,
)


def cycles_of(frames, crop, long_factors=FULL, short_factors=(), clips=8, **fields):
    """The long cycle of a recipe of so many frames, pixels and clips; ``fields`` are others of Multigrid."""
    recipe = replace(TINY, clips=clips, frames=frames, crop=crop)
    return long_cycle(recipe, Multigrid(tuple(long_factors), tuple(short_factors), **fields))


def described(cycles):
    """[(frames, crop, ratio), …] of each cycle's mini-batches."""
    return [[(s.frames, s.crop, s.ratio) for s in cycle.shapes] for cycle in cycles]


def test_long_and_short_cycle_are_those_of_the_paper():
    # Figure 2(d): batches (16, 8, 8), (8, 4, 4), (8, 4, 2), (4, 2, 1) times the baseline's.
    assert described(cycles_of(32, 224, LONG, SHORT)) == [
        [(8, 112, 16), (8, 158, 8), (8, 158, 8)],
        [(16, 112, 8), (16, 158, 4), (16, 158, 4)],
        [(16, 112, 8), (16, 158, 4), (16, 224, 2)],
        [(32, 112, 4), (32, 158, 2), (32, 224, 1)],
    ]


def test_long_cycle_alone_has_one_shape_in_each_cycle():
    # Figure 2(b): 8B × T/4 × (H, W)/√2, 4B × T/2 × (H, W)/√2, 2B × T/2, B × T.
    shapes = [(8, 158, 8), (16, 158, 4), (16, 224, 2), (32, 224, 1)]
    assert described(cycles_of(32, 224, LONG)) == [[shape] for shape in shapes]


def test_short_cycle_alone_keeps_the_frames():
    # Figure 2(c): 4B × H/2, 2B × H/√2, B × H.
    assert described(cycles_of(32, 224, short_factors=SHORT)) == [
        [(32, 112, 4), (32, 158, 2), (32, 224, 1)]
    ]


def test_short_crops_can_be_those_of_the_phase():
    # 224/√2 = 158.4, its half 79.2 and its 1/√2 112: 8, 4 and 2 times fewer pixels; frames: 4 times.
    cycles = cycles_of(32, 224, LONG, SHORT, short_crops_of="phase")
    assert described(cycles)[0] == [(8, 79, 32), (8, 112, 16), (8, 158, 8)]
    assert described(cycles)[3] == [(32, 112, 4), (32, 158, 2), (32, 224, 1)]


def test_a_largest_ratio_limits_the_clips_and_keeps_the_order():
    # Figure 2(d) with no more than 4 times, or 1 times, the baseline's clips.
    assert described(cycles_of(32, 224, LONG, SHORT, max_batch_ratio=4)) == [
        [(8, 112, 4), (8, 158, 4), (8, 158, 4)],
        [(16, 112, 4), (16, 158, 4), (16, 158, 4)],
        [(16, 112, 4), (16, 158, 4), (16, 224, 2)],
        [(32, 112, 4), (32, 158, 2), (32, 224, 1)],
    ]
    cycles = cycles_of(32, 224, LONG, SHORT[::-1], max_batch_ratio=1)
    assert described(cycles)[2] == [(16, 112, 1), (16, 158, 1), (16, 224, 1)]
    assert cycles[0].base == BatchShape(8, 158, clips=8, ratio=1)


@pytest.mark.parametrize(("crop", "coarse"), [(224, 158), (112, 79), (64, 45), (96, 68)])
def test_crops_round_to_the_nearest_pixel(crop, coarse):
    # crop/√2 = 158.39, 79.20, 45.25, 67.88
    assert cycles_of(8, crop, LONG)[0].base.crop == coarse


@pytest.mark.parametrize(
    ("frames", "factor", "shown"), [(10, 0.25, "2.5"), (12, 2 / 3, "8"), (2, 0.25, "0.5")]
)
def test_frames_that_do_not_divide_are_an_error(frames, factor, shown):
    with pytest.raises(ValueError, match=rf"{frames} frames cannot be cut to {shown}:"):
        cycles_of(frames, 224, [(factor, 1.0), (1.0, 1.0)])


@pytest.mark.parametrize(("exact", "whole"), [(2.09, 2), (1.92, 2), (2.89, 3)])
def test_ratio_within_five_percent_is_rounded(exact, whole):
    assert cycles_of(8, 1000, [(1.0, 1 / sqrt(exact))])[0].base.ratio == whole


@pytest.mark.parametrize("exact", [2.11, 1.88, 2.84])
def test_ratio_further_than_five_percent_is_not(exact):
    with pytest.raises(ValueError, match=f"needs {exact:.3f} times the clips"):
        cycles_of(8, 1000, [(1.0, 1 / sqrt(exact))])


def test_every_impossible_shape_is_in_one_message():
    with pytest.raises(ValueError, match=r"cut to 2\.5.*needs 1\.562 times"):
        cycles_of(10, 224, [(0.25, 1.0), (1.0, 0.8)])


def test_a_shape_may_come_again_later():
    cycles = cycles_of(32, 224, [(0.5, 1.0), (1.0, 1.0), (0.5, 1.0), (1.0, 1.0)])
    assert [cycle.base.frames for cycle in cycles] == [16, 32, 16, 32]


@pytest.mark.parametrize(
    "factors", [(1e-300, 1.0), (1.0, 1e-300), (1e-200, 1e-200), (5e-324, 5e-324)]
)
def test_factors_next_to_nothing_are_an_error_and_no_overflow(factors):
    with pytest.raises(ValueError, match=r"cannot be cut|rounds to none"):
        cycles_of(32, 224, [factors, (1.0, 1.0)])


RANDOM = replace(ROWS["long_short"], shape_order="random")


def turns(order):
    """Those of the short cycle alone: 4, 2 and 1 times the clips."""
    (cycle,) = cycles_of(32, 224, short_factors=SHORT, clips=1)
    return Turns(cycle.shapes, stage=0, order=order)


def test_a_place_is_hashed_by_splitmix64():
    # The generator's first outputs from the seeds 0 and 1, as its authors' C code prints them.
    assert _hash(0) == 0xE220A8397B1DCDAF
    assert _hash(1) == 0x910A2DEC89025CC1


def test_clips_before_counts_whole_turns_and_the_rest():
    found = [turns("coarse_to_fine").clips_before(steps) for steps in range(8)]
    assert found == [0, 4, 6, 7, 11, 13, 14, 18]


def test_shapes_come_in_turn():
    found = [turns("coarse_to_fine").shape_at(offset).ratio for offset in range(7)]
    assert found == [4, 2, 1, 4, 2, 1, 4]


@pytest.mark.parametrize("num", [1, 2, 3, 4, 50])
def test_a_permutation_has_everything_once(num):
    for place in ((0,), (3,), (1, 2), (0, 10**9)):
        assert sorted(scrambled(num, *place)) == list(range(num))


def test_all_permutations_come_about_as_often():
    counts = Counter(scrambled(3, 1, turn) for turn in range(6000))
    assert sorted(counts) == sorted(permutations(range(3)))
    # 1,000 each; the standard deviation of a count is 29.
    assert max(abs(count - 1000) for count in counts.values()) < 5 * 29


def test_steps_of_a_permuted_cycle_are_exact_inside_a_turn():
    permuted = turns("random")
    drawn = [permuted.shape_at(offset).ratio for offset in range(30)]
    assert [permuted.clips_before(steps) for steps in range(31)] == [
        sum(drawn[:steps]) for steps in range(31)
    ]
    assert all(sorted(drawn[i : i + 3]) == [1, 2, 4] for i in range(0, 30, 3))
    assert drawn != [4, 2, 1] * 10


def test_random_shapes_step_by_step():
    # By hand. 8 clips, 230 videos: 4 steps for each long shape in stage 0, 2 in stage 1, 9 of fine-tuning, in
    # halves of 4 and 5. The long shapes, b = 8, 4, 2, 1, come in the order 1 2 0 3 and then 0 1 3 2. The first
    # turns of the short cycle are 012 012 in stage 0, 210 in stage 1 and 102 021 in stage 2.
    built = build_schedule(TINY, RANDOM, 230)
    expected = (
        *(8, 4, 4, 8, *(8, 4, 2, 8), *(16, 8, 8, 16), *(4, 2, 1, 4)),
        *(8, 8, *(4, 4), *(1, 2), *(2, 4)),
        *(2, 4, 1, 4, *(2, 4, 1, 4, 1)),
    )
    plans = [built.plan_at(step) for step in range(built.total_steps)]
    assert tuple(plan.clips // 8 for plan in plans) == expected
    assert [phase.lr_factor for phase in built.phases] == pytest.approx(
        [4, 2, 8, 1, 0.8, 0.4, 0.1, 0.2, 0.1, 0.01]
    )
    assert [plan.epoch for plan in plans] == [
        8 * sum(expected[:step]) / 230 for step in range(len(expected))
    ]
    assert built.total_epochs == 8 * sum(expected) / 230


def test_cost_and_steps_in_whole_epochs_follow_the_order():
    built = build_schedule(TINY, replace(RANDOM, granularity="epoch"), 230)
    total = 0
    for step in range(built.total_steps):
        assert built.cost_before(step) == total
        plan = built.plan_at(step)
        total += plan.clips * plan.frames * plan.crop**2
    assert built.cost_before(built.total_steps) == total
    for phase in built.phases:
        before_last = built.epoch_before(phase.end_step - 1)
        assert before_last < phase.end_epoch <= built.epoch_before(phase.end_step)


def test_shapes_that_come_twice_and_meet_are_one_phase():
    twice = replace(RANDOM, long_factors=(*LONG[2:], *LONG[2:]), short_factors=())
    phases = derive_phases(TINY, twice, 230)
    identities = [(phase.stage, phase.cycle, phase.lr_factor) for phase in phases]
    assert all(one != two for one, two in pairwise(identities))
    steps = Counter()
    for phase in phases[:-2]:
        steps[phase.stage, phase.cycle.base.ratio] += phase.num_steps
    assert len({n for (stage, _), n in steps.items() if stage == 0}) == 1


# --- ratios by cost

# Multiply-accumulates of ViT-B/16 with tubelets of 2 frames, by hand: N tokens of C = 768 channels cost 12 N C²
# for the linear layers and 2 N² C for attention in each of 12 blocks, and 1,536 N C for the tubelets.
VIT_B = {
    size: n * 1536 * 768 + 12 * (12 * n * 768**2 + 2 * n * n * 768)
    for size, n in {(4, 160): 200, (8, 160): 400, (8, 224): 784, (16, 224): 1568}.items()
}
COSTS = ClipCosts("multiply-accumulates", tuple(VIT_B.items()))
GRIDS = ((0.25, 5 / 7), (0.5, 5 / 7), (0.5, 1.0), (1.0, 1.0))


def test_attention_allows_more_coarse_clips_than_pixels_do():
    by_pixels = cycles_of(16, 224, GRIDS)
    assert [cycle.base.ratio for cycle in by_pixels] == [8, 4, 2, 1]  # of 7.84, 3.92 and 2
    # Exact: 10.04, 4.82 and 2.29. These are the nearest quarters.
    by_costs = cycles_of(16, 224, GRIDS, clips=64, costs=COSTS, bn_base_size=0)
    assert [cycle.base.ratio for cycle in by_costs] == [10, 4.75, 2.25, 1]
    assert [cycle.base.clips for cycle in by_costs] == [640, 304, 144, 64]
    # A largest ratio holds for these too.
    limited = cycles_of(16, 224, GRIDS, clips=64, costs=COSTS, bn_base_size=0, max_batch_ratio=4)
    assert [cycle.base.ratio for cycle in limited] == [4, 4, 2.25, 1]


def test_finer_parts_are_taken_only_where_coarser_ones_are_too_far():
    """Exact: 10.04, 4.82 and 2.287. 5 is 3.7 % from 4.82, 2 is 12.5 % from 2.287, and 2.25 is 1.6 % from it."""
    # Mini-batches of 32 clips have four BN groups, so quarters are possible. 16 clips have two.
    found = cycles_of(16, 224, GRIDS, clips=32, costs=COSTS)
    assert [cycle.base.ratio for cycle in found] == [10, 5, 2.25, 1]
    with pytest.raises(ValueError, match="more than 5% from a multiple of 1/2"):
        cycles_of(16, 224, GRIDS, clips=16, costs=COSTS)


def test_a_ratio_by_cost_that_rounds_too_far_is_an_error():
    with pytest.raises(ValueError, match=r"224 pixels needs 2\.287 times the clips: more than 5%"):
        cycles_of(16, 224, GRIDS[2:], costs=COSTS)


def test_a_cost_that_is_unknown_is_an_error():
    with pytest.raises(ValueError, match="of 8 x 112² in multiply-accumulates is unknown"):
        cycles_of(16, 224, [(0.5, 0.5), (1.0, 1.0)], costs=COSTS)


def test_a_step_keeps_its_cost_and_evaluations_follow_it():
    recipe = replace(TINY, clips=16, frames=16, crop=224)
    multigrid = Multigrid(GRIDS, costs=COSTS, bn_base_size=0)
    found = build_schedule(recipe, multigrid, 5000)
    plans = [found.plan_at(step) for step in range(found.total_steps)]
    costs = [plan.clips * VIT_B[plan.frames, plan.crop] for plan in plans]
    assert min(costs) / max(costs) > 0.95
    assert found.cost_before(found.total_steps) == sum(costs)
    assert {plan.clips for plan in plans} == {160, 76, 36, 16}
    assert plans[-1].first_clip == sum(plan.clips for plan in plans[:-1])
