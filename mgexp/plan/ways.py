"""Training steps on random clips, for timing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import torch
from torch import Tensor

from mgexp.config.keys import Config
from mgexp.data.batches import Batch, Regions
from mgexp.data.clips import Change
from mgexp.data.loader import build_augment, build_crops
from mgexp.models.build import build_model, on_device
from mgexp.models.layers import Draws
from mgexp.multigrid.schedule import StepShape
from mgexp.optim.build import build_optimizer, set_rates
from mgexp.plan.timing import Step
from mgexp.run.clock import Clock
from mgexp.train.checkpoint import State
from mgexp.train.precision import resolve_precision
from mgexp.train.step import Normalizer, TrainStep, build_step, keep_memory, seed_step
from mgexp.train.task import Task, build_task

LEARNING_RATE = 1e-4
"""Assumption: small enough that the loss on random labels does not diverge, and large enough that
weights which start at zero do not stay zero."""


class RandomClips:
    """Random clips and labels. Shapes that differ only in their BN groups get the same clips and labels.

    ``region_side``: with AUG.DEVICE training, the pixels along a side of the regions from which ``device`` makes
    the clips, which it changes by ``augment``. None: the clips arrive finished.
    """

    def __init__(
        self,
        task: Task,
        device: torch.device,
        region_side: int | None = None,
        augment: Change | None = None,
    ) -> None:
        self.task, self.device = task, device
        self.region_side, self.augment = region_side, augment
        self._pixels = torch.empty(0, dtype=torch.uint8)

    def batch(self, shape: StepShape) -> Batch:
        """Return clips uint8 (B, 3, T, S, S) in channels_last_3d memory, as a loader does, and labels (B, ...)."""
        # Batches are views of one buffer, because separate batches for all shapes could fill the memory.
        size = (shape.clips, shape.frames, shape.crop, shape.crop, 3)
        clips = self._draw(shape, shape.crop).view(size).permute(0, 4, 1, 2, 3)
        rng = torch.Generator().manual_seed(1)
        return Batch(clips, self.task.draw_labels(shape.clips, rng), ())

    def arriving(self, shape: StepShape) -> Callable[[], Batch]:
        """Return what puts a batch of ``shape`` on the device. A run on a GPU does this during the step before."""
        batch, side = self.batch(shape), self.region_side
        if side is not None:
            sizes = ((shape.frames, side, side),) * shape.clips
            regions = Regions(sizes, tuple(range(shape.clips)), shape.crop, self.augment)
            batch = replace(batch, clips=self._draw(shape, side), regions=regions)
        return lambda: batch.on(self.device)

    def _draw(self, shape: StepShape, side: int) -> Tensor:
        num_bytes = 3 * shape.clips * shape.frames * side**2
        if num_bytes > len(self._pixels):
            rng = torch.Generator().manual_seed(0)
            pixels = torch.randint(0, 256, (num_bytes,), dtype=torch.uint8, generator=rng)
            self._pixels = pixels.pin_memory() if self.device.type == "cuda" else pixels
        return self._pixels[:num_bytes]


@dataclass(frozen=True)
class TrainingStep:
    """The ``Way`` of a run: the training step of ``train/loop.py``, on the device of ``data``."""

    step: TrainStep
    data: RandomClips

    def __call__(self, shape: StepShape) -> Step:
        """Return the step on clips of ``shape``; the step returns the mean loss."""
        return self._on_clips(shape, self.step)

    def gradients(self, shape: StepShape) -> Step:
        """Return the step without the update: forward and backward."""
        return self._on_clips(shape, self.step.backward)

    def _on_clips(self, shape: StepShape, train: Callable[[Batch, int, Draws], Tensor]) -> Step:
        arrive, numbers = self.data.arriving(shape), count()

        def step() -> Tensor:
            draws = Draws(seed=0, step=next(numbers))
            # A run does this before each step too.
            seed_step(draws.seed, draws.step)
            return train(arrive(), shape.num_bn_groups, draws)

        return step


def build_training_step(cfg: Config, device: torch.device) -> TrainingStep:
    """Build the step of a run of ``cfg`` in one process, at a small learning rate."""
    # A run does this too. Without it, a step on a CPU is timed as slower than it is in a run.
    keep_memory(device)
    # The optimizer is that of the row, because its update takes a part of a step, and its state a
    # part of the memory.
    model = on_device(build_model(cfg), device)
    optimizer = build_optimizer(cfg, model)
    set_rates(optimizer, LEARNING_RATE)
    normalizer = Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, device)
    precision = resolve_precision(cfg.TRAIN.PRECISION, device)
    # This switches TF32 as in a run.
    precision.set_backends()
    state = State(model, optimizer, Clock(), scaler=precision.scaler(device))
    task = build_task(cfg)
    step = build_step(cfg, model, state, task, normalizer, precision)
    # Workers that finish the clips have augmented them too.
    side, augment = None, None
    if cfg.AUG.DEVICE == "training":
        side, augment = build_crops(cfg.DATA).largest_side(), build_augment(cfg)
    return TrainingStep(step, RandomClips(task, device, side, augment))
