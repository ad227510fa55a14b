"""What the doctor says of a row: from times given by hand, and measured on a tiny model."""

import pytest
import torch
from tiny import tiny_config

from mgexp.errors import TrainingError
from mgexp.multigrid.schedule import StepShape
from mgexp.plan.advice import (
    loading_finding,
    shapes_finding,
    speed_finding,
    steps_finding,
    time_gradients,
)
from mgexp.plan.loading import kinds_of, phase_loads
from mgexp.plan.predict import Resources
from mgexp.plan.ways import build_training_step
from mgexp.train.setup import build_row_schedule

CPU = torch.device("cpu")
COARSE, FULL = StepShape(4, 32, 32, 4), StepShape(16, 64, 8, 1)
SECONDS = {COARSE: 0.5, FULL: 1.0}


def test_the_speedup_is_that_of_seconds():
    # the row: 30 × 0.5 + 10 × 1 = 25 s; the baseline: 100 × 1
    found = speed_finding(SECONDS, {COARSE: 30, FULL: 10}, 100)
    assert (found.status, found.values["speedup"]) == ("OK", pytest.approx(4.0))
    assert speed_finding(SECONDS, {COARSE: 30, FULL: 10}, 25).status == "warning"


def test_the_seconds_of_each_shape_are_for_programs_too():
    """The coarse step has a quarter of the pixels of the full one."""
    found = shapes_finding(SECONDS)
    assert found.values == {"32x4x32²": 0.5, "8x16x64²": 1.0}
    assert "32x4x32²: 0.5 s (2.00), 8x16x64²: 1 s (1.00)" in found.text


@pytest.mark.parametrize(
    ("core_seconds", "resources", "status"),
    [
        (0.001, Resources(2, 4), "OK"),
        (1.0, Resources(2, 4), "warning"),
        # 42.7 clips, the mean of 64, 32 and 32, in a step of 1 s on both cores.
        (0.03, Resources(2, 2, busy_cores=2), "warning"),
    ],
)
def test_loading_is_judged_by_the_cores_it_needs(tmp_path, core_seconds, resources, status):
    schedule = build_row_schedule(tiny_config(tmp_path), 24)
    seconds = dict.fromkeys(kinds_of(phase_loads(schedule)), core_seconds)
    found = loading_finding(schedule, seconds, 1.0, resources)
    assert found.status == status
    wanted = resources.busy_cores + 128 / 3 * core_seconds
    assert found.values["cores"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("num_videos", "status", "words"),
    [  # Four phases of 7.66 or 766 steps, then fine-tuning of 10.2 or 1,021 in two halves: tests/multigrid.
        (100, "warning", "few: 42 for 100 videos, 6 phases of 5 or more; the baseline has 100"),
        (10_000, "OK", "4,085 for 10,000 videos, 6 phases of 510 or more; the baseline has 10,000"),
    ],
)
def test_steps_are_counted_before_training(tmp_path, num_videos, status, words):
    found = steps_finding(build_row_schedule(tiny_config(tmp_path), num_videos))
    assert found.status == status and words in found.text


@pytest.mark.parametrize(
    ("keys", "shapes"),
    [
        # Few clips are timed in one BN group, which cannot be cut into parts. 32 clips by 4 are 8.
        ({"TRAIN.MAX_CLIPS_PER_GPU": 4}, [StepShape(2, 16, 32, 8), StepShape(2, 24, 8, 2)]),
        # Mixup blends pairs. 14 clips by 2 are 7.
        ({"AUG.MIXUP_ALPHA": 0.8}, [StepShape(2, 16, 14, 1), StepShape(2, 24, 4, 1)]),
    ],
)
def test_keys_that_divide_a_mini_batch_do_not_stop_the_timing(keys, shapes, tmp_path):
    way = build_training_step(tiny_config(tmp_path, keys), CPU)
    assert [*time_gradients(way, shapes)] == shapes


def test_a_shape_that_does_not_fit_is_one_message(tmp_path, monkeypatch):
    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    way = build_training_step(tiny_config(tmp_path), CPU)
    monkeypatch.setattr("mgexp.plan.advice.measure_steps", fail)
    shapes = [StepShape(4, 16, 32, 8), StepShape(8, 32, 4, 1)]
    with pytest.raises(TrainingError, match="32x4x16²: out of memory"):
        time_gradients(way, shapes)
