"""What is measured of a row: all of its shapes and kinds of clips."""

import pytest
from tiny import data_keys, tiny_config

from mgexp.errors import InputError
from mgexp.multigrid.schedule import StepShape, step_counts
from mgexp.plan.loading import kinds_of, phase_loads
from mgexp.plan.measure import Measurement, build_checked_schedule, build_measurement
from mgexp.plan.timing import TimedSteps


def test_every_shape_and_kind_of_clip_is_measured(tiny_data, tmp_path):
    cfg = tiny_config(tmp_path, data_keys(tiny_data))
    schedule = build_checked_schedule(cfg, [], 24)
    found = build_measurement(cfg, schedule, num_steps=1)
    assert found.steps.keys() == step_counts(schedule).keys()
    assert found.clips.keys() == {*kinds_of(phase_loads(schedule))}
    assert all(value > 0 for value in found.clips.values())


def test_the_seconds_of_a_clip_are_those_of_its_largest_mini_batch():
    timed = TimedSteps((1.0,), (1.0,))
    steps = {StepShape(8, 32, 4, 1): timed, StepShape(8, 32, 16, 1): timed}
    assert Measurement(steps, None).clip_seconds == [[8, 32, 0.0625]]


def test_all_problems_of_a_row_are_one_message(tmp_path):
    cfg = tiny_config(tmp_path, {"MULTIGRID.NOISE_SCALE": 40})
    with pytest.raises(InputError) as error:
        build_checked_schedule(cfg, ["an earlier one"], 24, num_processes=3)
    assert len(error.value.problems) == 3
