"""The peak of the machine, on sizes that grow until they take long enough."""

import pytest
import torch
from peak import Peak, best_rate, measure_peak

from mgexp.plan.timing import Sample

CPU = torch.device("cpu")


def test_the_better_one_is_the_peak():
    assert Peak(matmul=3.0, conv=2.0).flops_per_second == 3.0
    assert Peak(3.0, 2.0).best_of(Peak(1.0, 4.0)) == Peak(3.0, 4.0)


def test_a_peak_is_measured():
    peak = measure_peak(CPU, min_seconds=0, num_repeats=1)
    assert 1e8 < peak.matmul < 1e14
    assert 1e8 < peak.conv < 1e14


class SlowStart:
    """A machine of 10 FLOP/s that loses a second at every start, and once three; a step is its FLOPs."""

    delays = iter([1, 1, 1, 1, 1, 1, 3, 1])

    def time(self, flops):
        return Sample(flops / 10 + next(self.delays))


def test_sizes_grow_until_they_take_long_enough():
    found = best_rate(lambda scale: (10 * scale, 10 * scale), SlowStart(), 4.5, 2)
    assert found == pytest.approx(40 / 5)  # the better of two repeats counts
