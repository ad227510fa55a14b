"""How the decay rates of moments vary in a period."""

import math
from itertools import pairwise

import pytest

from mgexp.optim.large_batch import coefficient, place


@pytest.mark.parametrize("curve", ["cosine", "linear"])
def test_a_period_goes_from_1_to_0_and_starts_again(curve):
    values = [coefficient(step, 200, curve) for step in range(400)]
    assert (values[0], values[199]) == (1.0, 0.0)
    assert all(after < before for before, after in pairwise(values[:200]))
    assert values[200:] == values[:200]


def test_the_curves_by_hand():
    assert [coefficient(step, 5, "linear") for step in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.0]
    root = math.sqrt(0.5)
    wanted = [1, (1 + root) / 2, 0.5, (1 - root) / 2, 0]
    assert [coefficient(step, 5, "cosine") for step in range(5)] == pytest.approx(wanted)


@pytest.mark.parametrize("curve", ["cosine", "linear"])
def test_without_periods_it_stays_at_1(curve):
    assert {coefficient(step, None, curve) for step in range(1000)} == {1.0}


def test_the_place_of_a_step_in_its_period():
    assert [place(step, 3) for step in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert [place(step, None) for step in (0, 1, 1000)] == [0, 1, 1000]
