"""Training steps on random clips, for timing: in this process or in new processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from torch import Tensor

from mgexp.config.keys import Config
from mgexp.data.clips import Batch
from mgexp.models.build import build_model
from mgexp.models.layers import Draws
from mgexp.multigrid.schedule import StepShape
from mgexp.optim.build import build_optimizer, set_lr
from mgexp.plan.timing import Step, Way
from mgexp.run.clock import Clock
from mgexp.train.checkpoint import State
from mgexp.train.precision import resolve_precision
from mgexp.train.setup import clip_bytes
from mgexp.train.step import Normalizer, TrainStep, build_step, keep_memory, seed_step
from mgexp.train.task import Task, build_task
from mgexp.video.processes import start_process

LEARNING_RATE = 1e-4
"""Assumption: the loss on random labels does not diverge, but zero-initialised weights do not stay zero."""


class RandomClips:
    """Random clips and labels. Shapes that differ in their BN groups alone get the same ones.

    ``device``: where the step runs. For a GPU the clips lie in pinned memory, as those of a loader do.
    """

    def __init__(self, task: Task, device: torch.device) -> None:
        self.task, self.device = task, device
        self._pixels = torch.empty(0, dtype=torch.uint8)

    def batch(self, shape: StepShape) -> Batch:
        """Return clips uint8 (B, 3, T, S, S) in channels_last_3d memory, as a loader does, and labels (B, ...)."""
        # All batches are views of one buffer, because separate batches for all shapes could fill the memory.
        rng = torch.Generator().manual_seed(0)
        num_bytes = shape.clips * clip_bytes(shape.frames, shape.crop)
        if num_bytes > len(self._pixels):
            pixels = torch.randint(0, 256, (num_bytes,), dtype=torch.uint8, generator=rng)
            self._pixels = pixels.pin_memory() if self.device.type == "cuda" else pixels
        size = (shape.clips, shape.frames, shape.crop, shape.crop, 3)
        clips = self._pixels[:num_bytes].view(size).permute(0, 4, 1, 2, 3)
        return Batch(clips, self.task.draw_labels(shape.clips, rng.manual_seed(1)), ())


@dataclass(frozen=True)
class TrainingStep:
    """The way that training takes: the step of ``train/loop.py``, on the device of ``data``."""

    step: TrainStep
    data: RandomClips

    def __call__(self, shape: StepShape) -> Step:
        """Return the step on clips of ``shape``; the step returns the mean loss."""
        return self._on_clips(shape, self.step)

    def gradients(self, shape: StepShape) -> Step:
        """Return the step without the update: forward and backward."""
        return self._on_clips(shape, self.step.backward)

    def in_one_group(self, shape: StepShape) -> Step:
        """Return the step with all clips in one BN group, which costs as much as plain BN."""
        return self(replace(shape, num_bn_groups=1))

    def _on_clips(self, shape: StepShape, train: Callable[[Batch, int, Draws], Tensor]) -> Step:
        batch, numbers = self.data.batch(shape), count()

        def step() -> Tensor:
            draws = Draws(seed=0, step=next(numbers))
            seed_step(draws.seed, draws.step)
            there = batch.map(lambda tensor: tensor.to(self.data.device, non_blocking=True))
            return train(there, shape.num_bn_groups, draws)

        return step


def build_training_step(cfg: Config, device: torch.device) -> TrainingStep:
    """Build the step of a run of ``cfg`` in one process, at a small learning rate."""
    if device.type == "cpu":
        keep_memory()  # as in a run
    model = build_model(cfg).to(device)
    optimizer = build_optimizer(cfg, model)
    set_lr(optimizer, LEARNING_RATE)
    normalizer = Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, device)
    precision = resolve_precision(cfg.TRAIN.PRECISION, device)
    precision.set_backends()  # as in a run
    state = State(model, optimizer, Clock(), scaler=precision.scaler(device))
    task = build_task(cfg)
    step = build_step(cfg, model, state, task, normalizer, precision)
    return TrainingStep(step, RandomClips(task, device))


class WayInProcesses:
    """A way that runs several ways at the same time, each in a new process of ``num_threads`` threads.

    ``makers``: they make the ways, and must be picklable. A step ends when the steps in all processes have ended,
    and returns the loss of the first. An error in a process is raised here. ``close`` ends the processes; without
    it they end with this process.
    """

    def __init__(self, makers: Sequence[Callable[[], Way]], num_threads: int) -> None:
        # A forked process would inherit the memory settings of this process, and its threads would not work.
        context = multiprocessing.get_context("spawn")
        self._pools = [ProcessPoolExecutor(1, context, start_process) for _ in makers]
        begun = [
            pool.submit(_begin, make, num_threads)
            for pool, make in zip(self._pools, makers, strict=True)
        ]
        for future in begun:
            future.result()

    def __call__(self, shape: StepShape) -> Step:
        """Return the step on clips of ``shape``. Only the step of the latest shape can be taken."""
        self._in_all(_prepare, shape)
        return lambda: self._in_all(_take_step)[0]

    def close(self) -> None:
        """End the processes."""
        for pool in self._pools:
            pool.shutdown()

    def _in_all(self, function: Callable[..., Any], *arguments: object) -> list[Any]:
        futures = [pool.submit(function, *arguments) for pool in self._pools]
        return [future.result() for future in futures]


@dataclass
class _Kept:
    """The way and the step that a new process keeps from one call to the next."""

    way: Way
    step: Step


_KEPT = _Kept(lambda shape: lambda: None, lambda: None)


# A pool pickles its functions by name, so these three must stand at the top level of the module.
def _begin(make: Callable[[], Way], num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    _KEPT.way = make()


def _prepare(shape: StepShape) -> None:
    _KEPT.step = _KEPT.way(shape)


def _take_step() -> object:
    loss = _KEPT.step()
    return loss.item() if isinstance(loss, Tensor) else loss  # item() waits for the GPU
