"""What the machine can do at best, and how its device is waited for and asked for memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import torch
import torch.nn.functional as F

from mgexp.plan.timing import MemoryMeter, Step

MATMUL_SIZE = 512
"""Rows and columns of the smallest matrices, doubled until a product takes long enough."""

CONV_SHAPE = (128, 8, 28, 28)
"""Channels, frames, height and width that are convolved; clips are doubled until that takes long enough."""

KERNEL = (3, 3, 3)

MIN_SECONDS = 0.2
"""Long enough that starting the computation does not count. Assumption."""


@dataclass(frozen=True)
class Peak:
    """FLOP/s of a large matrix product and of a large convolution; a multiply-accumulate is two FLOPs."""

    matmul: float
    conv: float

    @property
    def flops_per_second(self) -> float:
        """The better one."""
        return max(self.matmul, self.conv)

    def best_of(self, other: Peak) -> Peak:
        """Of two measurements: what disturbs one makes it slower, never faster."""
        return Peak(max(self.matmul, other.matmul), max(self.conv, other.conv))


def measure_peak(
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    min_seconds: float = MIN_SECONDS,
    num_repeats: int = 5,
) -> Peak:
    """Each the best of ``num_repeats``; sizes grow until one of them takes ``min_seconds`` on ``device``."""

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

    wait = synchronizer(device)
    return Peak(
        matmul=_best_rate(matmul, wait, min_seconds, num_repeats),
        conv=_best_rate(conv, wait, min_seconds, num_repeats),
    )


def synchronizer(device: torch.device) -> Callable[[], object]:
    """Waits until ``device`` has done all that it was given."""
    return torch.cuda.synchronize if device.type == "cuda" else lambda: None


def memory_meter(device: torch.device) -> MemoryMeter:
    """Tells what torch holds of a GPU; of a CPU nothing is known."""
    return CudaMemory() if device.type == "cuda" else NoMemory()


class NoMemory:
    """Where torch does not say what it holds: on a CPU."""

    def start(self) -> None:
        """Nothing to watch."""

    def used_bytes(self) -> None:
        """Not known."""


class CudaMemory:
    """What torch's allocator hands out on the current GPU."""

    def __init__(self) -> None:
        self._before = 0

    def start(self) -> None:
        """Begins to watch."""
        torch.cuda.reset_peak_memory_stats()
        self._before = torch.cuda.memory_allocated()

    def used_bytes(self) -> int:
        """The most that was held since ``start`` above what was held then."""
        return torch.cuda.max_memory_allocated() - self._before


def _best_rate(
    make: Callable[[int], tuple[Step, int]],
    wait: Callable[[], object],
    min_seconds: float,
    num_repeats: int,
) -> float:
    """FLOP/s of the first scale 1, 2, 4, … that takes ``min_seconds``."""
    for power in count():
        run, flops = make(2**power)
        _seconds(run, wait)  # the first use of a size prepares what later ones use
        if _seconds(run, wait) >= min_seconds:
            break
    return flops / min(_seconds(run, wait) for _ in range(num_repeats))


@torch.no_grad()
def _seconds(run: Step, wait: Callable[[], object]) -> float:
    wait()
    start = time.perf_counter()
    run()
    wait()
    return time.perf_counter() - start
