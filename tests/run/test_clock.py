"""Clocks on a time that is set by hand."""

import subprocess
import sys
import time

import pytest

from mgexp.run.clock import Clock


class Time:
    """Seconds that pass only when a test says so."""

    def __init__(self, seconds=100.0):
        self.seconds = seconds

    def __call__(self):
        return self.seconds


def test_nested_names_count_on_their_own():
    time = Time()
    clock = Clock(time)
    with clock.measure("train"):
        time.seconds += 3
        with clock.measure("input_wait"):
            time.seconds += 2
    with clock.measure("train"):
        time.seconds += 1
    assert clock.seconds("train") == 6
    assert clock.seconds("input_wait") == 2
    assert clock.seconds("evaluate") == 0


def test_seconds_count_when_the_block_fails():
    time = Time()
    clock = Clock(time)
    with pytest.raises(RuntimeError), clock.measure("train"):
        time.seconds += 5
        raise RuntimeError
    assert clock.seconds("train") == 5


def test_a_resume_goes_on_from_the_checkpoint():
    time = Time()
    first = Clock(time)
    with first.measure("program"):
        first.add("shape_warmup", 1.5)
        time.seconds += 10
        state = first.state_dict()
        time.seconds += 99  # lost by a kill

    second = Clock(time)
    with second.measure("program"):
        time.seconds += 2  # start-up, before the checkpoint is read
        second.load_state_dict(state)
        time.seconds += 5
    assert second.state_dict() == {"program": 17, "shape_warmup": 1.5}


def test_the_age_counts_from_the_start_of_the_process():
    code = (
        "import time; time.sleep(0.3); from mgexp.run.clock import seconds_since_process_start;"
        "print(seconds_since_process_start())"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert 0.29 < float(done.stdout) <= time.monotonic() - started + 0.02
