"""The ways to make a training step that are timed: ours, and the plain one that it is compared with."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from itertools import count

import torch
from torch import Tensor, nn

from mgexp.data.clips import Batch
from mgexp.models.dropout import ClipDropout, Draws
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d
from mgexp.plan.step_shapes import StepShape
from mgexp.plan.step_time import Step
from mgexp.train.step import TrainStep, seed_step
from mgexp.train.task import Loss, Task

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
