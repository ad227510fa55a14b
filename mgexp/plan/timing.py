"""Time training steps: ``Stopwatch`` times one step, and two functions decide which step comes next.

``measure_steps`` compares ways to train, with a fixed number of steps each. ``measure_cycles`` times the shapes of
a schedule within a budget of seconds. Planner, doctor, ``DATA_LOADER.NUM_WORKERS auto`` and benchmarks use them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from mgexp.multigrid.schedule import StepShape
from mgexp.plan.loading import in_turn
from mgexp.plan.predict import StepCost
from mgexp.run.log import progress_bar

Step = Callable[[], object]
"""One training step. It may return before the GPU is done, since the stopwatch waits for the GPU."""

Way = Callable[[StepShape], Step]
"""A way to train: it makes clips of a shape, which is not timed, and returns the step on them."""

TIMED_TURNS = 2
"""Timed turns of a cycle. One turn comes before them and is not timed: it prepares memory and
libraries for the shapes, as in training. Measured with ten shapes on a CPU: without it a step costs
up to twice as much."""


@dataclass(frozen=True)
class Sample:
    """One timed step.

    ``core_seconds``: processor time of all threads of this process. ``used_bytes``: the peak of GPU memory in the
    step, minus the memory held before it; None on a CPU, where torch does not count memory.
    """

    seconds: float
    core_seconds: float
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
        # The second clock adds up the processor time of all threads. It tells how many cores a step
        # leaves idle.
        start, core_start = time.perf_counter(), time.process_time()
        step()
        self.wait()
        seconds, core_seconds = time.perf_counter() - start, time.process_time() - core_start
        peak = torch.cuda.max_memory_allocated(self._gpu) - held if self._gpu else None
        return Sample(seconds, core_seconds, peak)

    def wait(self) -> None:
        """Wait until the device has finished its work."""
        if self._gpu:
            torch.cuda.synchronize(self._gpu)


@dataclass(frozen=True)
class TimedSteps:
    """Seconds of the steps of one way at one shape.

    ``warmup_seconds``: the steps before the timed ones; the first of them is the first use of the shape.
    ``seconds``: the timed steps. ``used_bytes``: the most memory of a timed step, beyond the memory held between
    steps (weights, gradients, momenta); None where it was not measured.
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
        """The median of the timed seconds."""
        return float(np.quantile(self.seconds, 0.5))

    @property
    def p10(self) -> float:
        """The 10th percentile of the seconds, interpolated between two steps."""
        return float(np.quantile(self.seconds, 0.1))

    @property
    def p90(self) -> float:
        """The 90th percentile of the seconds, interpolated between two steps."""
        return float(np.quantile(self.seconds, 0.9))

    def ratios_to(self, other: TimedSteps) -> list[float]:
        """Divide the seconds by the seconds of ``other``, repeat by repeat.

        The two steps of a repeat were timed close together, so what disturbs one disturbs both.
        """
        return [own / its for own, its in zip(self.seconds, other.seconds, strict=True)]


def measure_steps(
    ways: Mapping[str, Way],
    shapes: Sequence[StepShape],
    num_steps: int,
    num_warmup: int,
    stopwatch: Stopwatch,
    progress: bool = False,
) -> dict[str, dict[StepShape, TimedSteps]]:
    """Time ``num_steps`` steps of every way at each shape, after ``num_warmup`` steps of each.

    ``progress`` shows a bar. An error of a way passes through.
    """
    found: dict[str, dict[StepShape, TimedSteps]] = {name: {} for name in ways}
    num_all = len(shapes) * len(ways) * (num_warmup + num_steps)
    # The shapes come one after the other, as in training, because libraries remember a limited
    # number of shapes. If several ways share kernels, only the first way pays for the first use of
    # a shape.
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
                found[name][shape] = TimedSteps(seconds[:num_warmup], seconds[num_warmup:], most)
    return found


def measure_cycles(
    way: Way,
    cycles: Sequence[Sequence[StepShape]],
    budget_seconds: float,
    stopwatch: Stopwatch,
    progress: bool = False,
) -> dict[StepShape, StepCost]:
    """Time the steps of all shapes of ``cycles`` for ``budget_seconds``, or longer until each was timed once.

    The cost of a shape is the median of its timed steps. Its very first step gives the extra time
    of the first use. ``progress`` shows a bar of the seconds. An error of ``way`` passes through.
    """
    start = time.perf_counter()
    # Rows and phases share cycles, and a shared cycle is timed once.
    distinct = [*dict.fromkeys(map(tuple, cycles))]
    shapes = dict.fromkeys(shape for cycle in distinct for shape in cycle)
    # This makes the clips, which is not timed.
    steps = {shape: way(shape) for shape in shapes}
    first: dict[StepShape, Sample] = {}
    timed: defaultdict[StepShape, list[Sample]] = defaultdict(list)

    def is_done(*wanted: StepShape) -> bool:
        is_late = time.perf_counter() >= start + budget_seconds
        return is_late and all(shape in timed for shape in wanted)

    budget = max(0, round(budget_seconds))
    with progress_bar(budget, " s", desc="timing steps", is_shown=progress) as bar:

        def sample_of(shape: StepShape) -> Sample:
            sample = stopwatch.time(steps[shape])
            bar.update(int(time.perf_counter() - start) - bar.n)
            return sample

        while not is_done(*shapes):
            # The cycles take turns, so that a machine that slows down over time slows all of them.
            for cycle in distinct:
                if is_done(*cycle):
                    continue
                # This is the turn that is not timed. Its steps run in every round, but ``first`` keeps
                # the earliest ones.
                for shape in cycle:
                    first.setdefault(shape, sample_of(shape))
                for shape in cycle * TIMED_TURNS:
                    if not is_done(shape):
                        timed[shape].append(sample_of(shape))
    costs = {}
    for shape, samples in timed.items():
        # The median, because other programs delay some of the steps and never make one faster.
        seconds = median(sample.seconds for sample in samples)
        core_seconds = median(sample.core_seconds for sample in samples)
        costs[shape] = StepCost(seconds, core_seconds, max(0.0, first[shape].seconds - seconds))
    return costs
