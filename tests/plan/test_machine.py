"""The peak of the machine, on sizes that grow until they take long enough."""

import pytest
import torch

from mgexp.plan import machine
from mgexp.plan.machine import NoMemory, Peak, measure_peak, memory_meter, synchronizer

CPU = torch.device("cpu")


def test_the_better_one_is_the_peak():
    assert Peak(matmul=3.0, conv=2.0).flops_per_second == 3.0
    assert Peak(3.0, 2.0).best_of(Peak(1.0, 4.0)) == Peak(3.0, 4.0)


def test_a_peak_is_measured():
    peak = measure_peak(CPU, min_seconds=0, num_repeats=1)
    assert 1e8 < peak.matmul < 1e14
    assert 1e8 < peak.conv < 1e14


def test_sizes_grow_until_they_take_long_enough(monkeypatch):
    """A machine of 10 FLOP/s that loses a second at every start; of two repeats the better counts."""
    delays = iter([1, 1, 1, 1, 1, 1, 3, 1])
    monkeypatch.setattr(machine, "_seconds", lambda flops, _: flops / 10 + next(delays))
    found = machine._best_rate(lambda scale: (10 * scale, 10 * scale), None, 4.5, 2)
    assert found == pytest.approx(40 / 5)


def test_a_cpu_is_not_waited_for_and_tells_no_memory():
    assert synchronizer(CPU)() is None
    meter = memory_meter(CPU)
    assert isinstance(meter, NoMemory)
    meter.start()
    assert meter.used_bytes() is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_tells_what_was_used_above_what_was_held():
    held = torch.zeros(2**20, device="cuda")
    meter = memory_meter(torch.device("cuda"))
    meter.start()
    held.clone()
    assert meter.used_bytes() == held.nbytes
