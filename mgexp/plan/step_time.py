"""Seconds of a training step at each shape, in several ways, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

import numpy as np
from tqdm import tqdm

from mgexp.plan.step_shapes import StepShape

Step = Callable[[], object]
"""One training step; returns or raises when it pleases, since its device is waited for."""

Way = Callable[[StepShape], Step]
"""A way to train: makes the clips of a shape, outside the clock, and returns the step on them."""


class MemoryMeter(Protocol):
    """Tells what a step needs of a device's memory."""

    def start(self) -> None:
        """Begins to watch."""

    def used_bytes(self) -> int | None:
        """The most that was held since ``start`` above what was held then; None where nothing tells."""


@dataclass(frozen=True)
class TimedSteps:
    """Seconds of the steps of one way at one shape.

    ``warmup_seconds``: of the steps before the timed ones; the first is the first use of the shape. ``seconds``:
    of the timed steps. ``used_bytes``: the most that one of them needed above what is held between steps
    (weights, gradients, momenta); None where it was not measured.
    Raises ValueError where either kind of step is missing.
    """

    warmup_seconds: tuple[float, ...]
    seconds: tuple[float, ...]
    used_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.warmup_seconds or not self.seconds:
            raise ValueError(
                f"{len(self.warmup_seconds)} warm-up steps and {len(self.seconds)} timed ones: "
                "at least one of each is needed"
            )

    @property
    def first_seconds(self) -> float:
        """Of the first step of the shape."""
        return self.warmup_seconds[0]

    @property
    def first_use_seconds(self) -> float:
        """What the first step took longer than later ones do: paid once for each shape of a schedule."""
        return max(0.0, self.first_seconds - self.median)

    @property
    def median(self) -> float:
        """Seconds per step."""
        return self._quantile(0.5)

    @property
    def p10(self) -> float:
        """Seconds that a tenth of the steps stay below; between two steps, interpolated."""
        return self._quantile(0.1)

    @property
    def p90(self) -> float:
        """Seconds that nine tenths of the steps stay below."""
        return self._quantile(0.9)

    def ratios_to(self, other: TimedSteps) -> list[float]:
        """Own seconds / the other way's, for each repeat: the two were measured one after the other."""
        return [own / its for own, its in zip(self.seconds, other.seconds, strict=True)]

    def _quantile(self, share: float) -> float:
        return float(np.quantile(self.seconds, share))


def measure_steps(
    ways: Mapping[str, Way],
    shapes: Sequence[StepShape],
    num_steps: int,
    num_warmup: int,
    synchronize: Callable[[], object],
    memory: MemoryMeter,
    progress: bool = False,
) -> dict[str, dict[StepShape, TimedSteps]]:
    """Times ``num_steps`` steps of every way at each shape, after ``num_warmup`` steps of each.

    One shape after the other, as training stays at a shape: libraries keep what they prepared for a limited number
    of shapes. At a shape the ways take turns, a step each, and the order of turns is reversed from repeat to
    repeat, so that a machine that gets slower or faster does so for all. The first way alone pays for the first
    use of a shape where the others compute the same. ``synchronize`` waits for the device.
    ``progress`` shows a bar on a terminal. Raises what a way raises.
    """
    found: dict[str, dict[StepShape, TimedSteps]] = {name: {} for name in ways}
    num_all = len(shapes) * len(ways) * (num_warmup + num_steps)
    # None: a bar on a terminal alone.
    with tqdm(total=num_all, desc="steps", disable=None if progress else True) as bar:
        for shape in shapes:
            steps = {name: way(shape) for name, way in ways.items()}
            clocks = {name: _Clock(step, synchronize, memory, bar) for name, step in steps.items()}
            for clock in clocks.values():
                clock.run(num_warmup)
            for number in range(num_steps):
                for name in list(ways)[:: -1 if number % 2 else 1]:
                    clocks[name].run(1)
            for name, clock in clocks.items():
                found[name][shape] = clock.result(num_warmup)
    return found


def slowest_to_fastest(seconds: Sequence[float]) -> float:
    """How many times as long the slowest takes as the fastest."""
    return max(seconds) / min(seconds)


class _Clock:
    """The seconds of all steps of one way at one shape."""

    def __init__(
        self,
        step: Step,
        synchronize: Callable[[], object],
        memory: MemoryMeter,
        bar: tqdm[NoReturn],
    ) -> None:
        self.step, self.synchronize, self.memory, self.bar = step, synchronize, memory, bar
        self.seconds: list[float] = []
        self.used: list[int | None] = []

    def run(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.synchronize()
            self.memory.start()
            start = time.perf_counter()
            self.step()
            self.synchronize()
            self.seconds.append(time.perf_counter() - start)
            self.used.append(self.memory.used_bytes())
            self.bar.update()

    def result(self, num_warmup: int) -> TimedSteps:
        used = [one for one in self.used[num_warmup:] if one is not None]
        seconds = tuple(self.seconds)
        return TimedSteps(seconds[:num_warmup], seconds[num_warmup:], max(used) if used else None)
