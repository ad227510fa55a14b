"""The peak of the machine, on sizes that grow until they take long enough."""

import torch
from peak import measure_peak

CPU = torch.device("cpu")


def test_a_peak_is_measured():
    peak = measure_peak(CPU, min_seconds=0, num_repeats=1)
    assert 1e8 < peak.matmul < 1e14
    assert 1e8 < peak.conv < 1e14
