"""Which operators a step runs, and how they are listed."""

from contextlib import nullcontext
from types import SimpleNamespace

import operators
import torch
from fake_gpu import GPU
from operators import OperatorTime, operator_table, operator_times
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity

CPU = torch.device("cpu")


def test_operators_are_those_of_one_step_and_the_slowest_is_first():
    large, small = torch.randn(300, 300), torch.randn(3, 3)

    def step():
        for _ in range(3):
            large.mm(large)
        small.exp()

    found = operator_times(step, CPU)
    calls = {one.name: one.calls for one in found}
    assert (calls["aten::mm"], calls["aten::exp"]) == (3, 1)
    assert found[0].name == "aten::mm"
    assert found[0].milliseconds > 0


def test_on_a_gpu_they_are_the_kernels_without_the_calls_that_start_them(fake_gpu, monkeypatch):
    def event(key, device_type, microseconds):
        return SimpleNamespace(
            key=key, device_type=device_type, self_device_time_total=microseconds, count=2
        )

    events = [event("cudaLaunchKernel", DeviceType.CPU, 0), event("gemm", DeviceType.CUDA, 1500)]
    asked = []

    def profile(activities):
        asked.extend(activities)
        fake_gpu.calls.append("profile")
        return nullcontext(SimpleNamespace(key_averages=lambda: events))

    monkeypatch.setattr(operators, "profile", profile)
    fake_gpu.calls.clear()
    assert operator_times(fake_gpu.answer("step"), GPU) == (OperatorTime("gemm", 1.5, 2),)
    assert asked == [ProfilerActivity.CUDA]
    assert fake_gpu.calls == ["step", "synchronize", "profile", "step", "synchronize"]


def test_the_table_has_the_slowest_operators_and_the_sum_of_all():
    times = (
        OperatorTime("a" * 100, 3.0, 1),
        OperatorTime("b", 1.25, 2000),
        OperatorTime("c", 1, 1),
    )
    lines = operator_table(times, num_lines=2).splitlines()
    assert [line.split() for line in lines] == [
        ["operator", "ms", "calls"],
        ["a" * 80, "3.0", "1"],
        ["b", "1.2", "2,000"],
        ["all", "3", "5.2", "2,002"],
    ]
