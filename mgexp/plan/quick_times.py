"""Seconds of a training step of every shape, within a budget of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from mgexp.plan.prediction import StepCost
from mgexp.plan.step_shapes import StepShape

Step = Callable[[StepShape], None]
"""One training step on a mini-batch of the shape; returns when the device is done."""

TIMED_TURNS = 2
"""Of a cycle in a visit, after one that is not timed: as in training, memory and libraries then know its shapes.
Measured, ten shapes on a CPU: a step of one that comes after others than in training costs up to twice as much."""


@dataclass(frozen=True)
class Sample:
    """One step; ``core_seconds`` of all threads of this process."""

    seconds: float
    core_seconds: float


@dataclass
class QuickTimes:
    """Times ``step`` until ``budget_seconds`` are spent; after that, only what has not been timed."""

    step: Step
    budget_seconds: float
    now: Callable[[], float] = time.perf_counter
    core_now: Callable[[], float] = time.process_time
    first: dict[StepShape, Sample] = field(default_factory=dict)
    timed: dict[StepShape, list[Sample]] = field(default_factory=dict)

    def measure(self, cycles: Sequence[Sequence[StepShape]]) -> dict[StepShape, StepCost]:
        """Visits the distinct ``cycles`` in turn, so that a machine that slows down does so for all.

        The first step of a shape is its first use, which is told apart; the cost is the median of those timed.
        """
        end = self.now() + self.budget_seconds
        distinct = [*dict.fromkeys(map(tuple, cycles))]
        while not self._is_done(end, {shape for cycle in distinct for shape in cycle}):
            for cycle in distinct:
                if not self._is_done(end, cycle):
                    self._visit(cycle, end)
        return {shape: self._cost(shape) for shape in self.timed}

    def _visit(self, cycle: Sequence[StepShape], end: float) -> None:
        for shape in cycle:
            self.first.setdefault(shape, self._sample(shape))
        for shape in [*cycle] * TIMED_TURNS:
            if not self._is_done(end, [shape]):
                self.timed.setdefault(shape, []).append(self._sample(shape))

    def _is_done(self, end: float, shapes: Iterable[StepShape]) -> bool:
        """Whether the budget is spent and ``shapes`` have a cost."""
        return self.now() >= end and all(shape in self.timed for shape in shapes)

    def _sample(self, shape: StepShape) -> Sample:
        start, core_start = self.now(), self.core_now()
        self.step(shape)
        return Sample(self.now() - start, self.core_now() - core_start)

    def _cost(self, shape: StepShape) -> StepCost:
        seconds = median(sample.seconds for sample in self.timed[shape])
        return StepCost(
            seconds,
            median(sample.core_seconds for sample in self.timed[shape]),
            max(0.0, self.first[shape].seconds - seconds),
        )
