"""Intervals computed by hand; the quantiles by integrating Student's density."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mgexp.errors import InputError
from mgexp.results.stats import T_QUANTILES_95, paired_difference, ratio_interval


@pytest.mark.parametrize("degrees", [1, 2, 5, 13, 30])
def test_quantiles_leave_2_5_percent_above(degrees):
    quantile = T_QUANTILES_95[degrees - 1]
    log_scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    scale = math.exp(log_scale) / math.sqrt(degrees * math.pi)
    x = np.linspace(0, quantile, 200_001)
    density = scale * (1 + x**2 / degrees) ** (-(degrees + 1) / 2)
    area = np.sum((density[1:] + density[:-1]) / 2 * np.diff(x))
    assert 0.5 + area == pytest.approx(0.975, abs=2e-5)


def test_there_is_a_quantile_for_each_of_30_degrees():
    assert len(T_QUANTILES_95) == 30
    assert list(T_QUANTILES_95) == sorted(T_QUANTILES_95, reverse=True)


def test_interval_of_three_pairs():
    # Mean -1, standard deviation 1, error 1/sqrt(3) = 0.57735, times 4.303 for 2 degrees.
    difference = paired_difference([-2.0, -1.0, 0.0])
    assert difference.mean == -1
    assert difference.half_width == pytest.approx(2.4843, abs=1e-4)
    assert difference.num_pairs == 3


def test_one_pair_has_no_interval_and_none_no_difference():
    assert paired_difference([-0.5]).half_width is None
    assert paired_difference([-0.5]).mean == -0.5
    assert paired_difference([]) is None


def test_no_interval_is_guessed_beyond_the_table():
    with pytest.raises(InputError, match="32 seeds"):
        paired_difference([0.0] * 32)


def test_interval_of_three_ratios():
    # Logarithms 0, 1 and 2: mean 1, standard deviation 1, error 0.57735, times 4.303.
    low, high = ratio_interval([1.0, math.e, math.e**2])
    assert math.log(low) == pytest.approx(1 - 4.303 / math.sqrt(3))
    assert math.log(high) == pytest.approx(1 + 4.303 / math.sqrt(3))
    assert ratio_interval([2.0]) is None
