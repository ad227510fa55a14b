"""Time training steps: ``Stopwatch`` times one step, and ``measure_steps`` all steps of several ways to train."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mgexp.multigrid.schedule import StepShape
from mgexp.plan.loading import in_turn
from mgexp.run.log import progress_bar

Step = Callable[[], object]
"""One training step. It may return before the GPU is done, since the stopwatch waits for the GPU."""

Way = Callable[[StepShape], Step]
"""A way to train: it makes clips of a shape, which is not timed, and returns the step on them."""


@dataclass(frozen=True)
class Sample:
    """One timed step. ``used_bytes``: its peak of GPU memory, minus the memory held before; None on a CPU."""

    seconds: float
    used_bytes: int | None = None


class Stopwatch:
    """A clock for single steps on ``device``."""

    def __init__(self, device: torch.device) -> None:
        self._gpu = device if device.type == "cuda" else None

    def time(self, step: Step) -> Sample:
        """Run ``step`` once and time it. An error of the step passes through."""
        # A GPU computes asynchronously: without the two waits the clock would see the launch of the kernels alone.
        self.wait()
        if self._gpu:
            torch.cuda.reset_peak_memory_stats(self._gpu)
        held = torch.cuda.memory_allocated(self._gpu) if self._gpu else 0
        start = time.perf_counter()
        step()
        self.wait()
        seconds = time.perf_counter() - start
        peak = torch.cuda.max_memory_allocated(self._gpu) - held if self._gpu else None
        return Sample(seconds, peak)

    def wait(self) -> None:
        if self._gpu:
            torch.cuda.synchronize(self._gpu)


@dataclass(frozen=True)
class TimedSteps:
    """Seconds of the steps of one way at one shape; the first of ``warmup_seconds`` is the first use of the shape.

    ``used_bytes``: the most memory of a timed step, beyond weights, gradients and momenta; None on a CPU.
    """

    warmup_seconds: tuple[float, ...]
    seconds: tuple[float, ...]
    used_bytes: int | None = None

    @property
    def first_use_seconds(self) -> float:
        """Extra time of the first step over later ones. A run pays this once for each shape."""
        return max(0.0, self.warmup_seconds[0] - self.median)

    @property
    def median(self) -> float:
        return float(np.quantile(self.seconds, 0.5))

    @property
    def p10(self) -> float:
        return float(np.quantile(self.seconds, 0.1))

    @property
    def p90(self) -> float:
        return float(np.quantile(self.seconds, 0.9))


def measure_steps(
    ways: Mapping[str, Way],
    shapes: Sequence[StepShape],
    num_steps: int,
    num_warmup: int,
    stopwatch: Stopwatch,
    progress: bool = False,
) -> dict[str, dict[StepShape, TimedSteps]]:
    """Time ``num_steps`` steps of every way at each shape, after ``num_warmup`` steps of each."""
    timed: dict[str, dict[StepShape, TimedSteps]] = {name: {} for name in ways}
    num_all = len(shapes) * len(ways) * (num_warmup + num_steps)
    # The shapes come one after the other, as in training, because libraries remember a limited number of shapes.
    # If several ways share kernels, only the first way pays for the first use of a shape.
    with progress_bar(num_all, " steps", desc="timing", is_shown=progress) as bar:
        for shape in shapes:
            steps = {name: way(shape) for name, way in ways.items()}
            samples: dict[str, list[Sample]] = {name: [] for name in ways}
            turns = [name for name in ways for _ in range(num_warmup)]
            for number in range(num_steps):
                turns += in_turn(ways, number)
            for name in turns:
                samples[name].append(stopwatch.time(steps[name]))
                bar.update()
            for name, own in samples.items():
                seconds = tuple(sample.seconds for sample in own)
                used = [s.used_bytes for s in own[num_warmup:] if s.used_bytes is not None]
                most = max(used) if used else None
                timed[name][shape] = TimedSteps(seconds[:num_warmup], seconds[num_warmup:], most)
    return timed
