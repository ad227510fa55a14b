"""What loading a schedule costs, from seconds per clip that are given by hand."""

import pytest
from tiny import tiny_config

from mgexp.plan.loading import core_seconds, kinds_of, legs_of, seconds_per_clip, unevenness
from mgexp.train.setup import build_row_schedule


@pytest.fixture
def schedule(tmp_path):
    return build_row_schedule(tiny_config(tmp_path), 24)


def test_every_shape_of_the_schedule_is_a_kind_once(schedule):
    found = kinds_of(legs_of(schedule))
    assert len(set(found)) == len(found)
    assert {(frames, crop) for frames, crop, _ in found} == {
        (shape.frames, shape.crop) for phase in schedule.phases for shape in phase.cycle.shapes
    }


def test_legs_hold_all_steps_and_clips_of_the_phases(schedule):
    legs = legs_of(schedule)
    assert len(legs) == len({(leg.cycle, leg.stride_range) for leg in legs}) < len(schedule.phases)
    assert sum(leg.num_steps for leg in legs) == schedule.total_steps
    clips = sum(
        phase.num_steps * schedule.recipe.clips * shape.ratio / len(phase.cycle.shapes)
        for phase in schedule.phases
        for shape in phase.cycle.shapes
    )
    assert sum(leg.num_steps * leg.clips_per_step for leg in legs) == pytest.approx(clips)


def test_a_step_costs_its_clips_times_their_seconds(schedule):
    legs = legs_of(schedule)
    # Seconds of frames x crop^2: each step costs what the baseline's does, but for rounded crops (23 for 22.6).
    seconds = {kind: kind[0] * kind[1] ** 2 for kind in kinds_of(legs)}
    baseline = 4 * 8 * 32**2
    for leg in legs:
        assert leg.core_seconds_per_step(seconds) == pytest.approx(baseline, rel=0.05)
    assert unevenness(legs, seconds) < 1.05
    total = sum(leg.num_steps * leg.core_seconds_per_step(seconds) for leg in legs)
    assert core_seconds(legs, seconds) == pytest.approx(total)


def test_the_mean_clip_weighs_kinds_by_their_clips(schedule):
    legs = legs_of(schedule)
    dear = kinds_of(legs)[0]
    seconds = {kind: 1.0 if kind == dear else 0.0 for kind in kinds_of(legs)}
    share = sum(leg.num_steps * leg.clips_of().get(dear, 0.0) for leg in legs) / sum(
        leg.num_steps * leg.clips_per_step for leg in legs
    )
    assert 0 < share < 1
    assert seconds_per_clip(legs, seconds) == pytest.approx(share)
    assert seconds_per_clip(legs, dict.fromkeys(seconds, 0.25)) == pytest.approx(0.25)


def test_seconds_that_do_not_shrink_make_coarse_steps_dear(schedule):
    legs = legs_of(schedule)
    seconds = dict.fromkeys(kinds_of(legs), 1.0)
    coarse, fine = legs[0], legs[-1]
    assert coarse.core_seconds_per_step(seconds) == coarse.clips_per_step
    assert coarse.clips_per_step > 2 * fine.clips_per_step
    assert unevenness(legs, seconds) == coarse.clips_per_step / fine.clips_per_step
