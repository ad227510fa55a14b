"""Training steps on random clips, for timing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import torch
from torch import Tensor

from mgexp.config.keys import Config
from mgexp.data.clips import Batch, Change
from mgexp.data.loader import build_augment
from mgexp.data.regions import Regions
from mgexp.models.build import build_model
from mgexp.models.layers import Draws
from mgexp.multigrid.schedule import StepShape
from mgexp.optim.build import build_optimizer, set_lr
from mgexp.plan.timing import Step
from mgexp.run.clock import Clock
from mgexp.train.checkpoint import State
from mgexp.train.precision import resolve_precision
from mgexp.train.setup import clip_bytes
from mgexp.train.step import Normalizer, TrainStep, build_step, keep_memory, seed_step
from mgexp.train.task import Task, build_task

LEARNING_RATE = 1e-4
"""Assumption: small enough that the loss on random labels does not diverge, and large enough that
weights which start at zero do not stay zero."""


REGION = 256 / 224
"""Pixels of the region of a video that becomes a pixel of the clip, along a side. Assumption: videos have a short
side of 256 pixels, and the crop of 224 pixels is cut from all of it."""


class RandomClips:
    """Random clips and labels. Shapes that differ only in their BN groups get the same clips and labels.

    ``device``: the device on which the step runs. For a GPU, the clips lie in page-locked memory,
    as the clips of a loader do. If ``makes_clips``, the device makes the clips from regions and changes them by
    ``augment``, as with AUG.DEVICE training.
    """

    def __init__(
        self,
        task: Task,
        device: torch.device,
        makes_clips: bool = False,
        augment: Change | None = None,
    ) -> None:
        self.task, self.device = task, device
        self.makes_clips, self.augment = makes_clips, augment
        self._pixels = torch.empty(0, dtype=torch.uint8)

    def batch(self, shape: StepShape) -> Batch:
        """Return clips uint8 (B, 3, T, S, S) in channels_last_3d memory, as a loader does, and labels (B, ...)."""
        # Batches are views of one buffer, because separate batches for all shapes could fill the
        # memory.
        size = (shape.clips, shape.frames, shape.crop, shape.crop, 3)
        clips = self._draw(shape, shape.crop).view(size).permute(0, 4, 1, 2, 3)
        rng = torch.Generator().manual_seed(1)
        return Batch(clips, self.task.draw_labels(shape.clips, rng), ())

    def arriving(self, shape: StepShape) -> Callable[[], Batch]:
        """Return what a run does before a step of ``shape``, so that its batch is on the device."""
        batch = self.batch(shape)
        if not self.makes_clips:
            return lambda: batch.map(lambda tensor: tensor.to(self.device, non_blocking=True))
        side = round(REGION * shape.crop)
        sizes = ((shape.frames, side, side),) * shape.clips
        labels, seeds = replace(batch, clips=batch.clips[:0]), tuple(range(shape.clips))
        regions = Regions(self._draw(shape, side), sizes, seeds, shape.crop, labels)
        return lambda: regions.finished(self.device, self.augment)

    def _draw(self, shape: StepShape, side: int) -> Tensor:
        """Draw the bytes of clips of ``side``² pixels."""
        num_bytes = shape.clips * clip_bytes(shape.frames, side)
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

    def in_one_group(self, shape: StepShape) -> Step:
        """Return the step with all clips in one BN group, which costs as much as plain BN."""
        return self(replace(shape, num_bn_groups=1))

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
    if device.type == "cpu":
        # A run does this too. Without it, a step is timed as slower than it is in a run.
        keep_memory()
    # The optimizer is that of the row, because its update takes a part of a step, and its state a
    # part of the memory.
    model = build_model(cfg).to(device)
    optimizer = build_optimizer(cfg, model)
    set_lr(optimizer, LEARNING_RATE)
    normalizer = Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, device)
    precision = resolve_precision(cfg.TRAIN.PRECISION, device)
    # This switches TF32 as in a run.
    precision.set_backends()
    state = State(model, optimizer, Clock(), scaler=precision.scaler(device))
    task = build_task(cfg)
    step = build_step(cfg, model, state, task, normalizer, precision)
    makes_clips = cfg.AUG.DEVICE == "training"
    augment = build_augment(cfg) if makes_clips else None
    return TrainingStep(step, RandomClips(task, device, makes_clips, augment))
