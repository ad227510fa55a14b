"""What the doctor says of a row: its steps, the take-off and its limit by hand, and which runs are no baseline."""

import pytest
from tiny import tiny_config

from mgexp.errors import InputError
from mgexp.plan.advice import read_losses, steps_finding, takeoff_finding, takeoff_step
from mgexp.train.setup import build_row_schedule


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        # Means of ten lines: 4 at step 100, then 0.3 less with each line, and 1 at the end. Half is 2.5.
        ([4.0] * 10 + [1.0] * 10, 150),
        # Fewer than ten lines are averaged all at once.
        ([3.0, 1.0], 20),
        # A short peak, and a fall after a long plateau.
        ([3.0] * 40 + [1.0] * 40, 450),
    ],
)
def test_the_takeoff_is_half_of_the_fall_of_the_smoothed_loss(losses, expected):
    assert takeoff_step([(10 * (n + 1), loss) for n, loss in enumerate(losses)]) == expected


def test_five_takeoffs_are_enough_and_less_is_not():
    assert takeoff_finding(1000, 200).status == "OK"
    assert takeoff_finding(999, 200).status == "warning"


def test_a_run_at_several_shapes_is_no_baseline(finished_run):
    with pytest.raises(InputError, match="trained at several shapes"):
        read_losses(finished_run)


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
