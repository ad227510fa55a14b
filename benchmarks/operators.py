"""Find the operators of torch that take most of the time of a step. On a GPU these are its kernels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from mgexp.plan.timing import Step, Stopwatch
from mgexp.text import aligned

NAME_WIDTH = 80
"""The characters of a name that a table shows. Names of kernels are longer."""


@dataclass(frozen=True)
class OperatorTime:
    """The milliseconds of all calls of an operator in one step, without those of the operators that it calls."""

    name: str
    milliseconds: float
    calls: int


def operator_times(step: Step, device: torch.device) -> tuple[OperatorTime, ...]:
    """Run ``step`` twice. Return the operators of the second run on ``device``, the slowest first."""
    is_gpu = device.type == "cuda"
    activity = ProfilerActivity.CUDA if is_gpu else ProfilerActivity.CPU
    field = "self_device_time_total" if is_gpu else "self_cpu_time_total"
    stopwatch = Stopwatch(device)
    step()
    stopwatch.wait()
    with profile(activities=[activity]) as found:
        step()
        stopwatch.wait()
    # For a GPU, torch also records the calls on the CPU that start the kernels.
    own = [one for one in found.key_averages() if one.device_type.name == activity.name]
    times = [OperatorTime(one.key, getattr(one, field) / 1000, one.count) for one in own]
    return tuple(sorted(times, key=lambda one: -one.milliseconds))


def operator_table(times: tuple[OperatorTime, ...], num_lines: int = 10) -> str:
    """Write a line for each of the slowest operators, and one for all of them together."""
    everything = OperatorTime(
        f"all {len(times)}", sum(one.milliseconds for one in times), sum(one.calls for one in times)
    )
    rows = [
        [one.name[:NAME_WIDTH], f"{one.milliseconds:.1f}", f"{one.calls:,}"]
        for one in (*times[:num_lines], everything)
    ]
    return aligned([["operator", "ms", "calls"], *rows])
