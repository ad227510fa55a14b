"""How shapes share the stages: against tables by hand, of the shares and of the schedules they make."""

from dataclasses import replace

import pytest
from recipes import HALF_AREA, KINETICS, LONG, ROWS, SHORT, schedule

from mgexp.multigrid.phases import Share, shape_shares
from mgexp.multigrid.recipe import Multigrid
from mgexp.multigrid.schedule import build_schedule

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
    first, second, *_ = built.phases
    assert [(s.frames, s.crop, s.ratio) for s in first.cycle.shapes] == [
        *((4, 32, 16), (4, 45, 8), (4, 45, 8)),
    ]
    assert [(s.frames, s.crop, s.ratio) for s in second.cycle.shapes] == [
        *((16, 32, 4), (16, 45, 2), (16, 64, 1)),
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


@pytest.mark.parametrize("granularity", ["step", "epoch"])
@pytest.mark.parametrize("row", ["long", "long_short"])
def test_once_costs_as_much_as_in_each_stage(row, granularity):
    """The same steps of the same shapes, up to rounding: only their order differs."""
    each, once = (
        schedule(row=row, granularity=granularity, long_cycle_per=per)
        for per in ("stage", "training")
    )
    assert once.total_steps == pytest.approx(each.total_steps, rel=0.01)
    assert once.flop_saving == pytest.approx(each.flop_saving, rel=0.01)


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


def test_every_row_of_the_paper_goes_through_its_shapes_in_each_stage():
    assert {multigrid.long_cycle_per for multigrid in ROWS.values()} == {"stage"}
