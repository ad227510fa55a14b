"""What the log says of a training that waits."""

import pytest

from mgexp.run.clock import Clock
from mgexp.run.other_programs import OBSERVED, OTHERS
from mgexp.train.loop import slow_lines


@pytest.mark.parametrize(
    ("waited", "others", "threads", "device", "named"),
    [
        (10, 0, 2, "cpu", []),
        (32, 0, 2, "cpu", ["prepare_data.py"]),
        (32, 0, 1, "cuda", ["prepare_data.py"]),
        (0, 100, 2, "cpu", ["NUM_THREADS 1"]),
        (71, 200, 2, "cpu", ["prepare_data.py", "NUM_THREADS 1"]),
        (0, 200, 1, "cpu", []),
        (0, 200, 2, "cuda", []),
    ],
)
def test_a_training_that_waits_is_told_what_helps(waited, others, threads, device, named):
    clock = Clock()
    for name, seconds in (
        ("train", 100),
        ("input_wait", waited),
        (OBSERVED, 100),
        (OTHERS, others),
    ):
        clock.add(name, seconds)
    lines = slow_lines(clock, threads, device)
    assert len(lines) == len(named)
    assert all(word in line for word, line in zip(named, lines, strict=True))
