"""The highest FLOP/s that a machine reaches, as a reference for the steps of tools/bench_step.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import torch
import torch.nn.functional as F

from mgexp.plan.timing import Step, Stopwatch

MATMUL_SIZE = 512
"""Rows and columns of the smallest matrices; they double until a product takes MIN_SECONDS."""

CONV_SHAPE = (128, 8, 28, 28)
"""Channels, frames, height and width of a convolution; the clips double until it takes MIN_SECONDS."""

KERNEL = (3, 3, 3)

MIN_SECONDS = 0.2
"""Long enough that the start-up of a computation is negligible. Assumption."""


@dataclass(frozen=True)
class Peak:
    """FLOP/s of a large matrix product and of a large convolution; a multiply-accumulate is two FLOPs."""

    matmul: float
    conv: float

    @property
    def flops_per_second(self) -> float:
        """The better of the two."""
        return max(self.matmul, self.conv)

    def best_of(self, other: Peak) -> Peak:
        """Take the better of two measurements, for each computation."""
        # Other programs make a measurement slower, never faster.
        return Peak(max(self.matmul, other.matmul), max(self.conv, other.conv))


def measure_peak(
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    min_seconds: float = MIN_SECONDS,
    num_repeats: int = 5,
) -> Peak:
    """Take the best of ``num_repeats`` of each computation, at a size that takes ``min_seconds`` on ``device``."""

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

    stopwatch = Stopwatch(device)
    with torch.no_grad():
        rates = [best_rate(make, stopwatch, min_seconds, num_repeats) for make in (matmul, conv)]
    return Peak(*rates)


def best_rate(
    make: Callable[[int], tuple[Step, int]],
    stopwatch: Stopwatch,
    min_seconds: float,
    num_repeats: int,
) -> float:
    """Measure FLOP/s at the first scale 1, 2, 4, … that takes ``min_seconds``. ``make``: scale → (step, FLOPs)."""
    for power in count():
        run, flops = make(2**power)
        stopwatch.time(run)  # the first use of a size prepares what later ones use
        if stopwatch.time(run).seconds >= min_seconds:
            break
    return flops / min(stopwatch.time(run).seconds for _ in range(num_repeats))
