"""Steps of each shape, counted one by one."""

from collections import Counter

import pytest
from tiny import tiny_config

from mgexp.plan.step_shapes import StepShape, step_counts
from mgexp.train.build import schedule_of


@pytest.mark.parametrize("num_processes", [1, 2])
def test_counts_are_those_of_the_plans(tmp_path, num_processes):
    schedule = schedule_of(tiny_config(tmp_path), 24, num_processes)
    plans = [schedule.plan_at(step) for step in range(schedule.total_steps)]
    expected = Counter(
        StepShape(plan.frames, plan.crop, plan.clips // num_processes, plan.num_bn_groups)
        for plan in plans
    )
    assert step_counts(schedule, num_processes) == expected
