"""Steps of each shape, counted one by one."""

from collections import Counter

import pytest
from tiny import tiny_config

from mgexp.multigrid.steps import StepShape, base_shapes, step_counts
from mgexp.train.setup import build_row_schedule


@pytest.mark.parametrize("num_processes", [1, 2])
def test_counts_are_those_of_the_plans(tmp_path, num_processes):
    schedule = build_row_schedule(tiny_config(tmp_path), 24, num_processes)
    plans = [schedule.plan_at(step) for step in range(schedule.total_steps)]
    expected = Counter(
        StepShape(plan.frames, plan.crop, plan.clips // num_processes, plan.num_bn_groups)
        for plan in plans
    )
    assert step_counts(schedule, num_processes) == expected


def test_base_shapes_are_those_of_the_long_cycle(tmp_path):
    """8 frames of 32 pixels in batches of 4, BN groups of 4: by hand."""
    schedule = build_row_schedule(tiny_config(tmp_path), 10_000)
    assert base_shapes(schedule) == (
        StepShape(2, 23, 32, 8),
        StepShape(4, 23, 16, 4),
        StepShape(4, 32, 8, 2),
        StepShape(8, 32, 4, 1),
    )
    assert set(base_shapes(schedule)) < set(step_counts(schedule))


def test_a_process_has_its_share_of_the_clips(tmp_path):
    schedule = build_row_schedule(tiny_config(tmp_path), 10_000, 2)
    assert base_shapes(schedule, 2)[-1] == StepShape(8, 32, 2, -2)
