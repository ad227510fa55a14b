"""Measure the highest FLOP/s and bytes/s of a machine, as a reference for the steps of tools/bench_step.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass
from itertools import count

import torch
import torch.nn.functional as F

from mgexp.plan.timing import Step, Stopwatch

MATMUL_SIZE = 512
"""The rows and columns of the smallest matrices. They double until a product takes MIN_SECONDS."""

CONV_SHAPE = (128, 8, 28, 28)
"""The channels, frames, height and width of a convolution. Its clips double until it takes MIN_SECONDS."""

KERNEL = (3, 3, 3)

COPIED_BYTES = 2**28
"""The bytes of a copy. Assumption: no cache holds as many."""

MIN_SECONDS = 0.05
"""Long enough that the start-up of a computation is negligible: it takes about 0.02 ms on a GPU. Assumption.

A GPU of 800 TFLOP/s then convolves clips of 13 GB into as many again. Four times as long would need more memory
than a GPU of 80 GB has."""


@dataclass(frozen=True)
class Peak:
    """The FLOP/s of a large matrix product and of a large convolution, and the bytes/s of a large copy.

    A multiply-accumulate is two FLOPs. A copy reads and writes each byte.
    """

    matmul: float
    conv: float
    bytes_per_second: float

    @property
    def flops_per_second(self) -> float:
        """The higher rate of the two."""
        return max(self.matmul, self.conv)

    def best_of(self, other: Peak) -> Peak:
        """Take the higher rate of two measurements, for each computation."""
        # Other programs on the machine can only make a measurement slower.
        return Peak(*map(max, astuple(self), astuple(other)))


def measure_peak(
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    min_seconds: float = MIN_SECONDS,
    num_repeats: int = 5,
) -> Peak:
    """Time each computation ``num_repeats`` times, at a size that takes ``min_seconds``, and take the best."""

    def matmul(scale: int) -> tuple[Step, int]:
        size = MATMUL_SIZE * scale
        left, right = torch.randn(2, size, size, device=device, dtype=dtype)
        return lambda: left @ right, 2 * size**3

    def conv(scale: int) -> tuple[Step, int]:
        channels, *positions = CONV_SHAPE
        clips, weight = (
            torch.randn(*shape, device=device, dtype=dtype).to(memory_format=torch.channels_last_3d)
            for shape in ((scale, *CONV_SHAPE), (channels, channels, *KERNEL))
        )
        macs = scale * channels**2 * math.prod(KERNEL) * math.prod(positions)
        return lambda: F.conv3d(clips, weight, padding=1), 2 * macs

    def copy(scale: int) -> tuple[Step, int]:
        source = torch.ones(COPIED_BYTES, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        return lambda: [target.copy_(source) for _ in range(scale)], 2 * scale * COPIED_BYTES

    stopwatch = Stopwatch(device)
    with torch.no_grad():
        makers = (matmul, conv, copy)
        return Peak(*(best_rate(make, stopwatch, min_seconds, num_repeats) for make in makers))


def best_rate(
    make: Callable[[int], tuple[Step, int]],
    stopwatch: Stopwatch,
    min_seconds: float,
    num_repeats: int,
) -> float:
    """Measure FLOP/s or bytes/s at the first scale 1, 2, 4, … that takes ``min_seconds``.

    ``make`` turns a scale into a step and its FLOPs or bytes.
    """
    for power in count():
        run, work = make(2**power)
        # Do not use the first time: libraries and memory are prepared for a new size.
        stopwatch.time(run)
        if stopwatch.time(run).seconds >= min_seconds:
            break
    return work / min(stopwatch.time(run).seconds for _ in range(num_repeats))
