"""Predicted times: values by hand."""

import pytest

from mgexp.multigrid.recipe import Multigrid, Recipe
from mgexp.multigrid.schedule import StepShape, build_schedule
from mgexp.plan.predict import Resources, predict, step_seconds
from mgexp.plan.timing import TimedSteps

RECIPE = Recipe(8, 16, 64, 2, (64, 80), 0.1, (0.0, 5.0), 10.0)
SHAPE = StepShape(16, 64, 8, 1)
KIND = (16, 64, (2, 2))


@pytest.mark.parametrize(
    ("core_seconds", "resources", "seconds"),
    [
        (0.4, Resources(2, 4, busy_cores=2), 1.0),
        (None, Resources(2, 2, busy_cores=2), 1.0),
        # 2 cores: 2 core seconds of training and 0.4 of loading.
        (0.4, Resources(2, 2, busy_cores=2), 1.2),
        # Too few workers.
        (9.0, Resources(2, 100, busy_cores=2), 4.5),
        # Without workers, loading and training take turns.
        (0.4, Resources(0, 2, busy_cores=2), 1.4),
        # Beside a GPU, all cores load.
        (1.9, Resources(2, 2), 1.0),
    ],
)
def test_a_step_waits_for_workers_and_for_cores(core_seconds, resources, seconds):
    assert step_seconds(1.0, core_seconds, resources) == pytest.approx(seconds)


def test_cores_needed_are_those_of_the_step_and_of_its_clips():
    schedule = build_schedule(RECIPE, Multigrid(), num_videos=80)
    timed, resources = {SHAPE: TimedSteps((0.5,), (0.5,))}, Resources(4, 4, busy_cores=2)
    (phase,) = predict(schedule, timed, {KIND: 0.125}, resources).phases
    assert phase.loading_core_seconds == pytest.approx(1.0)
    assert phase.cores_needed == pytest.approx(4.0)
    (unknown,) = predict(schedule, timed, None, resources).phases
    assert unknown.cores_needed is None


def test_a_baseline_is_its_steps_and_the_first_use_of_its_shape():
    schedule = build_schedule(RECIPE, Multigrid(), num_videos=80)
    timed = {SHAPE: TimedSteps((3.5,), (0.5,))}
    found = predict(schedule, timed, {KIND: 0.01}, Resources(1, 4))
    assert found.num_steps == 100
    assert found.seconds == pytest.approx(100 * 0.5 + 3.0)
    alone = predict(schedule, timed, {KIND: 0.01}, Resources(0, 4))
    # Without workers each of the steps loads its own 8 clips.
    assert alone.waiting_seconds == pytest.approx(100 * 0.08)


def test_a_step_of_a_short_cycle_is_a_mean_over_it():
    multigrid = Multigrid(short_factors=(0.5, 0.5**0.5))
    schedule = build_schedule(RECIPE, multigrid, num_videos=80)
    shapes = (StepShape(16, 32, 32, 1), StepShape(16, 45, 16, 1), SHAPE)
    timed = {
        shape: TimedSteps((1.0,), (seconds,))
        for shape, seconds in zip(shapes, (1.0, 2.0, 6.0), strict=True)
    }
    (phase,) = predict(schedule, timed, None, Resources(1, 4)).phases
    assert " ".join(map(str, phase.shapes)) == "32x16x32² 16x16x45² 8x16x64²"
    assert phase.seconds == pytest.approx(3.0)


def test_the_clips_of_a_step_are_shared_by_the_processes():
    schedule = build_schedule(RECIPE, Multigrid(bn_base_size=4), 80, num_processes=2)
    timed = {StepShape(16, 64, 4, 1): TimedSteps((1.0,), (1.0,))}
    (phase,) = predict(schedule, timed, {KIND: 1.0}, Resources(1, 4), num_processes=2).phases
    assert phase.loading_core_seconds == pytest.approx(4.0)
