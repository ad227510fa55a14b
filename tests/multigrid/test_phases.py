"""Phases: lengths, learning rates, strides and BN groups, and the share of the steps of each shape."""

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recipes import (
    HALF_AREA,
    KINETICS,
    LONG,
    NUM_VIDEOS,
    RECIPES,
    ROWS,
    SHORT,
    SSV2,
    TINY,
    identity,
    schedule,
)

from mgexp.multigrid.phases import Share, count_bn_groups, derive_phases, shape_shares
from mgexp.multigrid.recipe import ClipCosts, Multigrid
from mgexp.multigrid.schedule import build_schedule

# Mean clips of the long cycle's shapes relative to the baseline's, by hand: (16+8+8)/3, …, (4+2+1)/3.
MEAN_RATIOS = {
    "long": [Fraction(n) for n in (8, 4, 2, 1)],
    "long_short": [Fraction(n, 3) for n in (32, 16, 14, 7)],
}
RATIOS = {"baseline": Fraction(1), "short": Fraction(7, 3)}


def steps_by_hand(dataset, row):
    """Steps of each phase with the long cycle: x·D·N/(B·Σb̄) a shape, x·D·N/(B·m) of fine-tuning."""
    recipe, ratios = RECIPES[dataset], MEAN_RATIOS[row]
    videos = Fraction(NUM_VIDEOS[dataset], recipe.clips)
    durations = [b - a for a, b in pairwise((*recipe.stage_epochs, recipe.max_epoch))]
    mean = sum(ratios) / 4
    fine_tuning_epochs = durations[-1] * ratios[-1] / mean
    x = Fraction(3, 2) * recipe.max_epoch / (sum(durations[:-1]) + fine_tuning_epochs)
    steps = [round(x * d * videos / sum(ratios)) for d in durations[:-1] for _ in range(4)]
    fine_tuning = round(x * durations[-1] * videos / mean)
    return [*steps, fine_tuning // 2, fine_tuning - fine_tuning // 2]


@pytest.mark.parametrize("dataset", RECIPES)
@pytest.mark.parametrize("row", MEAN_RATIOS)
def test_steps_of_the_long_cycle_follow_the_formulas(dataset, row):
    phases = schedule(dataset, row).phases
    assert [phase.num_steps for phase in phases] == steps_by_hand(dataset, row)


@pytest.mark.parametrize("dataset", RECIPES)
@pytest.mark.parametrize(("row", "factor"), [("baseline", Fraction(1)), ("short", Fraction(3, 2))])
def test_without_the_long_cycle_stages_start_where_the_recipe_says(dataset, row, factor):
    recipe = RECIPES[dataset]
    epochs = (*recipe.stage_epochs[1:], recipe.max_epoch)
    drawn = recipe.clips * RATIOS[row]
    ends = [round(factor * epoch * NUM_VIDEOS[dataset] / drawn) for epoch in epochs]
    assert [phase.end_step for phase in schedule(dataset, row).phases] == ends


@pytest.mark.parametrize(
    ("recipe", "clips", "num_videos", "stage"), [(KINETICS, 1, 1052, 2), (SSV2, 8, 2708, 0)]
)
def test_shapes_of_a_stage_get_equal_steps_at_a_tie(recipe, clips, num_videos, stage):
    # Found by search: so near to n + ½ that the floats of two shapes lie on either side of it.
    phases = derive_phases(replace(recipe, clips=clips), ROWS["long_short"], num_videos)
    assert len({phase.num_steps for phase in phases if phase.stage == stage}) == 1


def test_every_shape_gets_a_step_however_few_the_videos():
    phases = derive_phases(KINETICS, ROWS["long"], num_videos=1)
    assert [phase.num_steps for phase in phases] == [1] * 13  # fine-tuning has one half


@pytest.mark.parametrize(
    ("dataset", "epochs"),
    [
        # The released formula's own output; the full shape of SSv2's second stage is rounded away.
        ("ssv2", [0, 11, 16, 21, 24, 27, 28, 30, 31, 33]),
        ("charades", [0, 31, 47, 60, 67, 73, 76, 79, 80, 83, 86]),
    ],
)
def test_epochs_are_rounded_as_the_released_code_does(dataset, epochs):
    phases = schedule(dataset, "long_short", granularity="epoch").phases
    assert [phase.start_epoch for phase in phases] == epochs[:-1]
    assert [phase.end_epoch for phase in phases] == epochs[1:]


def test_without_fine_tuning_the_last_stage_has_the_long_cycle_too():
    phases = schedule(row="long", fine_tuning=False).phases
    assert [phase.cycle.base.ratio for phase in phases] == [8, 4, 2, 1] * 4
    # The factor x is then EPOCH_FACTOR itself; Σb = 15.
    by_hand = [round(Fraction(3, 2) * d * 234_643 / (64 * 15)) for d in (94, 60, 42, 43)]
    assert [phase.num_steps for phase in phases[::4]] == by_hand
    assert phases[-1].lr_factor == pytest.approx(0.001)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    num_videos=st.integers(1, 2000),
    clips=st.sampled_from([1, 2, 4, 8, 16]),
    row=st.sampled_from(sorted(ROWS)),
    granularity=st.sampled_from(["step", "epoch"]),
    stages=st.sampled_from([(0, 2, 3), (0, 1), (0, 5, 8, 10)]),
    order=st.sampled_from(["coarse_to_fine", "random"]),
)
def test_phases_follow_one_another_and_none_is_empty(
    num_videos, clips, row, granularity, stages, order
):
    recipe = replace(TINY, clips=clips, stage_epochs=stages, max_epoch=stages[-1] + 2)
    multigrid = replace(ROWS[row], granularity=granularity, shape_order=order)
    phases = derive_phases(recipe, multigrid, num_videos)
    ends = list(accumulate(phase.num_steps for phase in phases))
    assert [phase.start_step for phase in phases] == [0, *ends][: len(phases)]
    assert all(phase.num_steps > 0 for phase in phases)
    for before, after in pairwise(phases):
        assert identity(before) != identity(after)
        assert before.end_epoch == after.start_epoch
        drawn = before.turns.clips_before(before.num_steps)
        assert after.first_clip == before.first_clip + drawn


@pytest.mark.parametrize(
    ("dataset", "random_stride", "expected"),
    [("kinetics", True, (2, 8)), ("kinetics", False, (8, 8)), ("ssv2", True, None)],
)
def test_stride_grows_as_frames_shrink_and_segments_have_none(dataset, random_stride, expected):
    first = schedule(dataset, "long", random_stride=random_stride).phases[0]
    assert first.stride_range == expected


SCALINGS = [("linear", [8, 4, 2, 1]), ("sqrt", [8**0.5, 2, 2**0.5, 1]), ("none", [1, 1, 1, 1])]


@pytest.mark.parametrize(
    ("scaling", "noise_scale", "factors"),
    [
        *((scaling, None, factors) for scaling, factors in SCALINGS),
        # B is 64 clips: (1 + N/64) / (1 + N/(64·b)) for b = 8, 4, 2, 1
        ("noise", 64, [2 / (1 + 1 / 8), 2 / (1 + 1 / 4), 2 / (1 + 1 / 2), 1]),
        ("noise", 512, [9 / 2, 9 / 3, 9 / 5, 1]),
        ("noise", 1e300, [8, 4, 2, 1]),  # all noise: linear
        ("noise", 1e-9, [1, 1, 1, 1]),  # no noise: none
    ],
)
def test_learning_rate_scales_with_the_clips_of_the_long_cycle(scaling, noise_scale, factors):
    for row in ("long", "long_short"):
        phases = schedule(row=row, lr_scaling=scaling, noise_scale=noise_scale).phases
        assert [phase.lr_factor for phase in phases[:4]] == pytest.approx(factors)
        assert [phase.lr_factor for phase in phases[4:8]] == pytest.approx([f / 10 for f in factors])  # fmt: skip


@pytest.mark.parametrize(("scaling", "factors"), SCALINGS)
def test_weight_decay_scales_with_the_clips_of_the_long_cycle(scaling, factors):
    """The stages of the learning rate do not change it."""
    ours = schedule(row="long_short", weight_decay_scaling=scaling)
    assert [phase.weight_decay_factor for phase in ours.phases[:8]] == pytest.approx(2 * factors)
    steps = [phase.start_step for phase in ours.phases[:4]]
    assert [ours.plan_at(step).weight_decay_factor for step in steps] == pytest.approx(factors)


def test_scaling_by_the_noise_follows_the_clips_after_their_limit():
    """At most 2 · 64 clips, N = 64: 2 / (1 + 1/2) at every coarse shape."""
    phases = schedule(row="long", lr_scaling="noise", noise_scale=64, max_batch_ratio=2).phases
    assert [phase.lr_factor for phase in phases[:4]] == pytest.approx([4 / 3, 4 / 3, 4 / 3, 1])


@pytest.mark.parametrize(
    ("clips", "processes", "groups"),
    [
        *((512, 8, 8), (256, 8, 4), (128, 8, 2), (64, 8, 1)),  # released: Kinetics
        *((128, 8, 2), (64, 8, 1), (32, 8, -2), (16, 8, -4)),  # released: SSv2, Charades
        *((64, 1, 8), (8, 1, 1), (8, 8, -8), (8, 2, -2), (32, 4, 1)),
        *((4, 1, 1), (2, 2, -2), (4, 4, -4)),  # fewer than 8 in all: one group
        *((6, 3, -3), (6, 2, -2), (7, 1, 1)),
    ],
)
def test_bn_groups_hold_eight_clips(clips, processes, groups):
    assert count_bn_groups(clips, processes, base_size=8) == groups


@pytest.mark.parametrize(("base_size", "groups"), [(4, 4), (16, 1), (32, -2), (1, 16), (0, 1)])
def test_bn_groups_follow_the_base_size(base_size, groups):
    assert count_bn_groups(32, 2, base_size) == groups


@pytest.mark.parametrize(
    ("clips", "processes", "message"),
    [
        (10, 4, "10 clips does not divide over 4 processes"),
        (24, 2, "12 clips per process neither divide nor are a multiple of .* 8"),
        (12, 3, "8 clips spans 2 processes, which do not divide 3"),
    ],
)
def test_unequal_shares_or_groups_are_an_error(clips, processes, message):
    with pytest.raises(ValueError, match=message):
        count_bn_groups(clips, processes, base_size=8)


QUARTER = ((0.5, 1.0), (1.0, 1.0))
"""A long cycle whose coarse shape takes 2.25 times the clips, by the costs below."""
COSTS = ClipCosts("multiply-accumulates", (((8, 32), 9), ((4, 32), 4)))


@pytest.mark.parametrize(
    ("clips", "size", "works"),
    # A quarter of the clips is whole groups of 8, or two clips. Of 16 clips a quarter is half a group.
    [(32, 8, True), (64, 8, True), (16, 8, False), (8, 8, False), (4, 0, True), (6, 0, False)],
)
def test_quarters_of_the_clips_take_whole_groups(clips, size, works):
    recipe = replace(TINY, clips=clips, frames=8, crop=32)
    multigrid = Multigrid(QUARTER, costs=COSTS, bn_base_size=size)
    if works:
        first = derive_phases(recipe, multigrid, 5000)[0]
        assert first.clips == clips * 9 // 4
        assert first.num_bn_groups == (first.clips // size if size else 1)
    else:
        with pytest.raises(ValueError, match=r"2\.250 times the clips: more than 5%"):
            derive_phases(recipe, multigrid, 5000)


def test_ratios_of_pixels_take_quarters_only_where_there_are_no_groups():
    """A crop of 3/4 needs 16/9 = 1.78 times the clips; half the frames need 2 times."""
    recipe = replace(TINY, clips=32, frames=8, crop=32)
    multigrid = Multigrid(((0.5, 1.0), (1.0, 0.75), (1.0, 1.0)), bn_base_size=0)
    assert [phase.clips for phase in derive_phases(recipe, multigrid, 5000)[:3]] == [64, 56, 32]
    with pytest.raises(ValueError, match=r"1\.778 times the clips: more than 5%"):
        derive_phases(recipe, replace(multigrid, bn_base_size=8), 5000)


def test_short_cycle_batch_that_does_not_divide_into_the_groups_is_an_error():
    # Base 24 clips in 3 groups, but crops of one half come in batches of 32.
    multigrid = Multigrid(((1.0, 3**-0.5), (1.0, 1.0)), (0.5,), epoch_factor=1.5, fine_tuning=True)
    with pytest.raises(ValueError, match="32 clips does not divide over 1 processes with 3 BN"):
        derive_phases(TINY, multigrid, 1000)


def test_long_cycle_needs_two_stages():
    recipe = replace(TINY, stage_epochs=(0,))
    with pytest.raises(ValueError, match=r"multigrid\.fine_tuning needs at least two stages"):
        derive_phases(recipe, ROWS["long"], 1000)


def test_equal_phases_with_nothing_between_them_are_one():
    """One video, 16 clips a step at half the frames, 8 at all: by hand, from the ends of the shapes.

    The shapes of the first stage end at epochs 10, 15, 25, 30. A step draws 16: the second has none, nor the last.
    """
    recipe = replace(TINY, stage_epochs=(0, 30), max_epoch=40)
    multigrid = Multigrid(((0.5, 1.0), (1.0, 1.0)) * 2, granularity="epoch")
    first, second, *_ = derive_phases(recipe, multigrid, num_videos=1)
    assert (first.cycle.base.frames, first.start_step, first.end_step) == (4, 0, 2)
    assert (first.end_epoch, second.stage, second.start_step) == (25, 1, 2)


TWO = ((0.25, HALF_AREA), (1.0, 1.0))
QUICKSTART = replace(
    KINETICS,
    clips=8,
    frames=16,
    crop=64,
    stage_epochs=(0, 6.5, 8.5),
    max_epoch=10,
    warmup_epochs=1.5,
)


def test_with_the_baselines_clips_at_every_shape_nothing_else_differs_from_the_baseline():
    """239 epochs of 234,643 videos in batches of 64 are 876,245 steps; 13 phases are rounded to steps."""
    ours = schedule(max_batch_ratio=1, epoch_factor=1.0)
    assert ours.total_steps == pytest.approx(876_245, abs=7)
    assert {shape.ratio for phase in ours.phases for shape in phase.cycle.shapes} == {1}
    assert {round(phase.lr_factor, 9) for phase in ours.phases} == {1, 0.1, 0.01, 0.001}


LONG_ONCE = Multigrid(LONG, epoch_factor=1.5, fine_tuning=True, long_cycle_per="training")


def table(multigrid):
    """(stage, first step, frames, crop, clips, factor of the learning rate) of each phase, on 1,200 videos."""
    return [
        (p.stage, p.start_step, p.cycle.base.frames, p.cycle.base.crop, p.clips, p.lr_factor)
        for p in build_schedule(QUICKSTART, multigrid, 1200).phases
    ]


def test_in_each_stage_every_shape_has_an_equal_share_of_it():
    assert shape_shares([6.0, 3.0], 3, "stage") == [
        *(Share(0, 0, 2.0), Share(0, 1, 2.0), Share(0, 2, 2.0)),
        *(Share(1, 0, 1.0), Share(1, 1, 1.0), Share(1, 2, 1.0)),
    ]


@pytest.mark.parametrize(
    ("durations", "num_shapes", "wanted"),
    [
        ([6.0, 3.0], 3, [(0, 0, 3.0), (0, 1, 3.0), (1, 2, 3.0)]),  # boundaries that are one
        ([6.0, 2.0], 2, [(0, 0, 4.0), (0, 1, 2.0), (1, 1, 2.0)]),
        ([1.0, 7.0], 2, [(0, 0, 1.0), (1, 0, 3.0), (1, 1, 4.0)]),
        ([1.0, 1.0, 4.0], 1, [(0, 0, 1.0), (1, 0, 1.0), (2, 0, 4.0)]),
        ([9.0], 3, [(0, 0, 3.0), (0, 1, 3.0), (0, 2, 3.0)]),
    ],
)
def test_in_training_every_shape_has_an_equal_share_of_the_whole(durations, num_shapes, wanted):
    assert shape_shares(durations, num_shapes, "training") == [Share(*share) for share in wanted]


def test_boundaries_that_differ_by_rounding_are_one():
    # 0.1 + 0.1 + 0.1 is a little more than 0.3: the first third ends after the first stage, by 1e-17.
    shares = shape_shares([0.1, 0.1, 0.1], 3, "training")
    assert [(share.stage, share.shape) for share in shares] == [(0, 0), (1, 1), (2, 2)]


# By hand. b = 8, 1, so m = 4.5; x = 15 / (8.5 + 1.5 · 1 / 4.5); an epoch of the recipe has x · 1200 / (8 · 4.5) =
# 56.604 steps. Of 8.5 epochs the coarse shape has 4.25: 240.6 steps; the fine one 2.25 of the first stage: 127.4,
# and 2 of the second: 113.2. Fine-tuning has 1.5: 84.9 steps, in halves.
def test_two_levels_are_coarse_once_and_then_fine():
    assert table(replace(LONG_ONCE, long_factors=TWO)) == [
        (0, 0, 4, 45, 64, pytest.approx(8)),
        (0, 241, 16, 64, 8, pytest.approx(1)),
        (1, 368, 16, 64, 8, pytest.approx(0.1)),
        (2, 481, 16, 64, 8, pytest.approx(0.1)),
        (2, 523, 16, 64, 8, pytest.approx(0.01)),
    ]


# b̄ = 32/3, 7/3, so m = 6.5; x = 15 / (8.5 + 1.5 · 7/3 / 6.5); 38.298 steps an epoch: 162.8, 86.2, 76.6, 57.4.
def test_two_levels_with_the_short_cycle():
    multigrid = replace(LONG_ONCE, long_factors=TWO, short_factors=SHORT)
    built = build_schedule(QUICKSTART, multigrid, 1200)
    assert [phase.start_step for phase in built.phases] == [0, 163, 249, 326, 354]
    assert built.total_steps == 383
    shapes = [[(s.frames, s.crop, s.ratio) for s in each.cycle.shapes] for each in built.phases]
    assert shapes[0] == [(4, 32, 16), (4, 45, 8), (4, 45, 8)]
    assert shapes[1] == [(16, 32, 4), (16, 45, 2), (16, 64, 1)]


# By hand. With the baseline's clips everywhere, an epoch has 1200 / 8 = 150 steps. The first stage has 6.5 epochs,
# 975 steps: two thirds are coarse. The second stage has 2 epochs, 300 steps. Fine-tuning has 225, in halves.
def test_a_shape_that_is_given_twice_has_twice_the_steps():
    multigrid = replace(LONG_ONCE, long_factors=(*TWO[:1], *TWO), long_cycle_per="stage")
    assert table(replace(multigrid, max_batch_ratio=1, epoch_factor=1.0)) == [
        (0, 0, 4, 45, 8, pytest.approx(1)),
        (0, 650, 16, 64, 8, pytest.approx(1)),
        (1, 975, 4, 45, 8, pytest.approx(0.1)),
        (1, 1175, 16, 64, 8, pytest.approx(0.1)),
        (2, 1275, 16, 64, 8, pytest.approx(0.1)),
        (2, 1387, 16, 64, 8, pytest.approx(0.01)),
    ]


# m = 3.75; x = 15 / (8.5 + 1.5 / 3.75); 67.416 steps an epoch. Each shape has 2.125 epochs, 143.3 steps; of the
# full one's, 0.125 lie in the first stage, 8.4 steps, and 2 in the second, 134.8. Fine-tuning: 101.1.
def test_the_four_shapes_of_the_paper_once():
    assert table(LONG_ONCE) == [
        (0, 0, 4, 45, 64, pytest.approx(8)),
        (0, 143, 8, 45, 32, pytest.approx(4)),
        (0, 286, 8, 64, 16, pytest.approx(2)),
        (0, 429, 16, 64, 8, pytest.approx(1)),
        (1, 437, 16, 64, 8, pytest.approx(0.1)),
        (2, 572, 16, 64, 8, pytest.approx(0.1)),
        (2, 622, 16, 64, 8, pytest.approx(0.01)),
    ]


@pytest.mark.parametrize("row", ["baseline", "short"])
def test_with_one_shape_there_is_nothing_to_share(row):
    assert schedule(row=row, long_cycle_per="training").phases == schedule(row=row).phases


def test_without_fine_tuning_the_last_stage_is_shared_too():
    # 4 of 8 stage-epochs each: the decay at epoch 6 falls into the full shape.
    recipe = replace(QUICKSTART, stage_epochs=(0, 6), max_epoch=8, warmup_epochs=0)
    multigrid = Multigrid(TWO, long_cycle_per="training")
    phases = build_schedule(recipe, multigrid, 1200).phases
    assert [(p.stage, p.clips) for p in phases] == [(0, 64), (0, 8), (1, 8)]
    # x = 1, m = 4.5: 4 · 1200 / (8 · 4.5) = 133.3 steps, and 66.7 for 2 epochs.
    assert [p.num_steps for p in phases] == [133, 67, 67]
