"""Predicted times: values by hand."""

import pytest

from mgexp.multigrid.recipe import Multigrid, Recipe
from mgexp.multigrid.schedule import StepShape, build_schedule
from mgexp.plan.communication import Communication, Link, Network
from mgexp.plan.predict import Balance, Resources, StepCost, cost_of, leg_shapes, predict

RECIPE = Recipe(8, 16, 64, 2, (64, 80), 0.1, (0.0, 5.0), 10.0)
SILENT = Communication(0, Network(Link(0.0, 1.0), Link(0.0, 1.0), 8))
SHAPE = StepShape(16, 64, 8, 1)
KIND = (16, 64, (2, 2))


def balance(**changes):
    values = {
        "compute": 1.0,
        "compute_core_seconds": 1.5,
        "communication": 0.0,
        "exposed": 0.0,
        "loading_core_seconds": 0.4,
        "resources": Resources(2, 2),
    }
    return Balance(**{**values, **changes})


def test_loading_that_fits_beside_training_costs_nothing():
    assert balance().wall == 1.0


def test_workers_take_what_training_leaves_idle_and_then_hold_it_up():
    # 2 cores: 1.5 core seconds of training and 0.9 of loading take 1.2 s.
    found = balance(loading_core_seconds=0.9)
    assert found.wall == pytest.approx(1.2)
    assert found.waiting == pytest.approx(0.2)
    assert found.binds == "compute"  # without it a step would take 0.45 s, without loading 1 s


def test_too_few_workers_bind():
    found = balance(loading_core_seconds=9.0, resources=Resources(2, 100))
    assert found.wall == pytest.approx(4.5)
    assert found.binds == "loading"
    assert found.workers_to_unbind() == 12  # 9, and a quarter more since clips differ


def test_without_workers_loading_and_training_take_turns():
    assert balance(resources=Resources(0, 2)).wall == pytest.approx(1.4)


def test_cores_that_are_busy_are_not_helped_by_workers():
    found = balance(loading_core_seconds=3.0)
    assert found.workers_to_unbind() is None
    assert found.cores_to_unbind() == 5  # 4.5 core seconds in a step of one second


def test_communication_binds_where_it_takes_longest():
    assert balance(communication=5.0, exposed=5.0).binds == "communication"


def test_unknown_loading_is_not_counted():
    assert balance(loading_core_seconds=None).wall == 1.0


def test_a_baseline_is_its_steps_and_what_comes_once():
    schedule = build_schedule(RECIPE, Multigrid(), num_videos=80)
    cost = {SHAPE: StepCost(0.5, 0.5, first_use_seconds=3.0)}
    found = predict("b", schedule, cost, {KIND: 0.01}, Resources(1, 4), SILENT)
    # 100 steps of 0.5 s; the first batch of 8 clips is loaded by one worker.
    assert found.num_steps == 100
    assert found.seconds == pytest.approx(100 * 0.5 + 3.0 + 0.08)
    alone = predict("b", schedule, cost, {KIND: 0.01}, Resources(0, 4), SILENT)
    # Without workers each of the steps loads its own 8 clips, the first like the others.
    assert alone.seconds == pytest.approx(100 * (0.5 + 0.08) + 3.0)


def test_a_step_of_a_short_cycle_is_a_mean_over_it():
    multigrid = Multigrid(short_factors=(0.5, 0.5**0.5))
    schedule = build_schedule(RECIPE, multigrid, num_videos=80)
    (_, shapes), *_ = leg_shapes(schedule)
    costs = {
        shape: StepCost(seconds, 0.0)
        for shape, seconds in zip(shapes, (1.0, 2.0, 6.0), strict=True)
    }
    found = predict("s", schedule, costs, None, Resources(1, 4), SILENT)
    assert [str(shape) for shape in shapes] == ["32x16x32²", "16x16x45²", "8x16x64²"]
    assert found.legs[0].balance.wall == pytest.approx(3.0)


def test_two_gpus_have_half_of_the_clips_and_of_their_time():
    schedule = build_schedule(RECIPE, Multigrid(bn_base_size=4), 80, num_processes=2)
    cost = {SHAPE: StepCost(0.5, 0.5)}
    found = predict("b", schedule, cost, {KIND: 1.0}, Resources(1, 4), SILENT, num_gpus=2)
    balance = found.legs[0].balance
    assert balance.compute == pytest.approx(0.25)
    assert balance.loading_core_seconds == pytest.approx(4.0)


def test_batch_norm_that_spans_gpus_is_told():
    schedule = build_schedule(RECIPE, Multigrid(), 80, num_processes=2)
    found = predict("b", schedule, {SHAPE: StepCost(1, 1)}, None, Resources(1, 4), SILENT, 2)
    assert found.legs[0].spans_processes


def test_a_shape_that_was_not_measured_is_an_error():
    with pytest.raises(ValueError, match="no step of 4 frames of 64"):
        cost_of({SHAPE: StepCost(1, 1)}, StepShape(4, 64, 8, 1))


def test_the_nearest_number_of_clips_is_taken():
    costs = {SHAPE: StepCost(1.0, 1.0), StepShape(16, 64, 64, 8): StepCost(6.0, 6.0)}
    assert cost_of(costs, StepShape(16, 64, 32, 4)).seconds == pytest.approx(3.0)
