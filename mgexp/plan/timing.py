"""Seconds of a training step of every shape, within a budget of time."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from statistics import median
from typing import NoReturn, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from mgexp.data.clips import Batch
from mgexp.models.layers import ClipDropout, Draws
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d
from mgexp.multigrid.schedule import StepShape
from mgexp.plan.predict import StepCost
from mgexp.train.step import TrainStep, seed_step
from mgexp.train.task import Loss, Task

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


OURS, PLAIN, ONE_GROUP = "ours", "plain", "one_group"
WAYS = (OURS, PLAIN, ONE_GROUP)

LEARNING_RATE = 1e-4
"""Assumption: with random labels the loss does not diverge, but zero-initialised weights do not stay zero."""


@dataclass(frozen=True)
class RandomClips:
    """Random clips and labels, the same for the same shape whatever its BN groups; ``device`` is where they go."""

    task: Task
    device: torch.device

    def batch(self, shape: StepShape) -> Batch:
        """Clips uint8 (B, 3, T, S, S) in channels_last_3d memory as a loader gives them, and labels (B, ...)."""
        rng = torch.Generator().manual_seed(0)
        size = (shape.clips, shape.frames, shape.crop, shape.crop, 3)
        frames = torch.randint(0, 256, size, dtype=torch.uint8, generator=rng)
        labels = self.task.draw_labels(shape.clips, rng)
        batch = Batch(frames.permute(0, 4, 1, 2, 3), labels, ())
        return batch.pin_memory() if self.device.type == "cuda" else batch


@dataclass(frozen=True)
class TrainingStep:
    """A step as ``train/loop.py`` makes it: the one place that knows how. A way of ``measure_steps``.

    What ``step`` trains is on the device of ``data``.
    """

    step: TrainStep
    data: RandomClips

    def __call__(self, shape: StepShape) -> Step:
        """The step on clips of ``shape``; it returns the mean loss."""
        batch, numbers = self.data.batch(shape), count()

        def step() -> Tensor:
            draws = Draws(seed=0, step=next(numbers))
            seed_step(draws.seed, draws.step)
            there = batch.map(lambda tensor: tensor.to(self.data.device, non_blocking=True))
            return self.step(there, shape.num_bn_groups, draws)

        return step

    def in_one_group(self, shape: StepShape) -> Step:
        """The same, with all clips in one BN group: what plain BN costs."""
        return self(replace(shape, num_bn_groups=1))


class PlainStep:
    """A step as one writes it without much thought: contiguous memory, plain BN, a loop over SGD's parameters.

    ``model``: a network of plain modules in contiguous memory (``plain_copy``); ``optimizer``: its own, with
    foreach off. The arithmetic is that of ``TrainingStep`` with one BN group but for masks of dropout. A way of
    ``measure_steps``.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        loss: Loss,
        data: RandomClips,
        max_grad_norm: float = 0.0,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.mean, self.std, self.loss, self.data = mean, std, loss, data
        self.max_grad_norm = max_grad_norm

    def __call__(self, shape: StepShape) -> Step:
        """The step on clips of ``shape``; it returns the mean loss."""
        batch, numbers = self.data.batch(shape), count()
        clips, labels = batch.clips.contiguous(), batch.labels.to(self.data.device)

        def step() -> Tensor:
            seed_step(0, next(numbers))
            self.model.train()
            self.optimizer.zero_grad()
            loss = self.loss(self.model(self._normalized(clips)), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            if self.max_grad_norm:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
            self.optimizer.step()
            return loss.detach()

        return step

    def _normalized(self, clips: Tensor) -> Tensor:
        device = self.data.device
        mean, std = (
            torch.tensor(values, device=device).view(1, -1, 1, 1, 1)
            for values in (self.mean, self.std)
        )
        return (clips.to(device).float() / 255 - mean) / std


def plain_copy(model: nn.Module) -> nn.Module:
    """The same network and weights with ``nn.BatchNorm3d`` and ``nn.Dropout`` for ours, in contiguous memory."""
    clone = copy.deepcopy(model)
    for name, module in list(clone.named_modules()):
        if isinstance(module, GroupedBatchNorm3d):
            plain = nn.BatchNorm3d(module.num_features, module.eps, module.momentum)
            plain.load_state_dict(module.state_dict())
            clone.set_submodule(name, plain)
        elif isinstance(module, ClipDropout):
            clone.set_submodule(name, nn.Dropout(module.p))
    return clone.to(next(model.parameters()).device).to(memory_format=torch.contiguous_format)


StepQuickTimes = Callable[[StepShape], None]
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

    step: StepQuickTimes
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
