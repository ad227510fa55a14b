"""When a run is evaluated, on a schedule of the Kinetics shapes."""

from tiny import tiny_config

from mgexp.train.loop import milestones
from mgexp.train.setup import schedule_of

BASELINE = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False}


def test_steps_of_one_shape_are_divided_evenly(tmp_path):
    schedule = schedule_of(tiny_config(tmp_path, BASELINE), 100)  # 4 epochs of 25 steps
    assert milestones(schedule, 4) == (25, 50, 75, 100)
    assert milestones(schedule, 1) == (100,)


def test_shapes_are_divided_by_cost(tmp_path):
    schedule = schedule_of(tiny_config(tmp_path), 2400)
    found = milestones(schedule, 5)
    costs = [schedule.cost_before(step) / schedule.cost_before(found[-1]) for step in found]
    assert [round(cost, 2) for cost in costs] == [0.2, 0.4, 0.6, 0.8, 1.0]


def test_a_run_of_few_steps_has_no_step_twice_and_not_the_first(tmp_path):
    schedule = schedule_of(tiny_config(tmp_path, BASELINE), 3)  # 3 steps
    assert milestones(schedule, 10) == (1, 2, 3)
