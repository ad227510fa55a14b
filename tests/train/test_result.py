"""The verdict on a run and its seconds."""

import pytest

from mgexp.run.clock import Clock
from mgexp.train.result import judge, seconds_record, summary


@pytest.mark.parametrize(
    ("expected", "verdict"),
    [
        ((), "nothing expected"),
        ((("top1", 74.0, 1.0),), "met"),
        ((("top1", 76.5, 1.0),), "missed"),
        ((("top1", 73.5, 1.0),), "missed"),
        ((("top1", 75.0, 1.0), ("top5", 80.0, 1.0)), "missed"),
        ((("top1", 75.0, 1.0), ("top5", 92.0, 0.0)), "met"),
    ],
)
def test_every_expectation_must_hold(expected, verdict):
    assert judge({"top1": 75.0, "top5": 92.0}, expected) == verdict


def test_steady_seconds_leave_out_the_first_use_of_shapes():
    clock = Clock(now=lambda: 0.0)
    clock.add("train", 100.0)
    clock.add("shape_warmup", 7.0)
    found = seconds_record(clock)
    assert (found["train"], found["steady"], found["shape_warmup"]) == (100.0, 93.0, 7.0)
    assert found["evaluate"] == 0.0


def test_the_summary_says_accuracy_cost_and_verdict():
    seconds = {"train": 12.0, "input_wait": 3.0, "program": 20.0}
    result = {
        "metrics": {"top1": 91.25},
        "steps": 40,
        "train_flops": 5.0e12,
        "seconds": seconds,
        "verdict": "met",
    }
    assert summary(result) == (
        "top-1 91.25 %, 40 steps, 5.0 TFLOPs, 12.0 s of training (3.0 s waiting for input), "
        "20.0 s in all; the EXPECTED value was met"
    )
