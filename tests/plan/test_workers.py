"""Workers from measured seconds, by hand."""

import math

import pytest

from mgexp.plan.workers import Workers, choose_workers


@pytest.mark.parametrize(
    ("load", "step", "most", "chosen"),
    [
        (3.0, 1.0, 16, 4),  # 3.75
        (0.01, 1.0, 16, 1),
        (30.0, 1.0, 8, 8),
        (30.0, 1.0, 0, 1),
    ],
)
def test_workers_load_a_step_while_one_is_trained(load, step, most, chosen):
    assert choose_workers(load, step, most, 10, math.inf) == Workers(chosen, 2)


@pytest.mark.parametrize(
    ("free", "chosen"),
    [
        (90, Workers(4, 2)),
        (89, Workers(4, 1)),
        (50, Workers(4, 1)),
        (40, Workers(3, 1)),
        (5, Workers(1, 1)),
    ],
)
def test_batches_fit_into_shared_memory_beside_the_one_in_use(free, chosen):
    assert choose_workers(3.0, 1.0, 16, 10, free) == chosen
