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

STEPS_PER_VISIT = 3
"""Of a cycle with one shape, as of the short cycle's three: most follow a step of the shape that they follow in
training, whose memory they find."""


@dataclass(frozen=True)
class Sample:
    """One step; ``core_seconds`` of all threads of this process."""

    seconds: float
    core_seconds: float


@dataclass
class QuickTimes:
    """Times ``step`` until ``budget_seconds`` are spent; after that, only what has not been timed twice."""

    step: Step
    budget_seconds: float
    now: Callable[[], float] = time.perf_counter
    core_now: Callable[[], float] = time.process_time
    samples: dict[StepShape, list[Sample]] = field(default_factory=dict)

    def measure(self, cycles: Sequence[Sequence[StepShape]]) -> dict[StepShape, StepCost]:
        """Visits the distinct ``cycles`` in turn, so that a machine that slows down does so for all.

        The first step of a shape is its first use, which is told apart; the cost is the median of the others.
        """
        end = self.now() + self.budget_seconds
        distinct = [visit_of(cycle) for cycle in dict.fromkeys(map(tuple, cycles))]
        shapes = {shape for visit in distinct for shape in visit}
        while not self._is_done(end, shapes):
            for shape in (shape for visit in distinct for shape in visit):
                if not self._is_done(end, {shape}):
                    self._sample(shape)
        return {shape: _cost(samples) for shape, samples in self.samples.items()}

    def _is_done(self, end: float, shapes: Iterable[StepShape]) -> bool:
        """Whether the budget is spent and ``shapes`` have a cost."""
        return self.now() >= end and all(len(self.samples.get(one, ())) >= 2 for one in shapes)

    def _sample(self, shape: StepShape) -> None:
        start, core_start = self.now(), self.core_now()
        self.step(shape)
        sample = Sample(self.now() - start, self.core_now() - core_start)
        self.samples.setdefault(shape, []).append(sample)


def visit_of(cycle: Sequence[StepShape]) -> list[StepShape]:
    """Whole turns of ``cycle``, of three steps or more."""
    return list(cycle) * -(-STEPS_PER_VISIT // len(cycle))


def _cost(samples: Sequence[Sample]) -> StepCost:
    first, *later = samples
    seconds = median(sample.seconds for sample in later)
    return StepCost(
        seconds,
        median(sample.core_seconds for sample in later),
        max(0.0, first.seconds - seconds),
    )
