"""One training step: nothing in it waits for the device, and nothing depends on what the clips show."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mgexp.data.clips import Batch
from mgexp.models.dropout import Draws, set_draws
from mgexp.multigrid.batchnorm import one_sample, set_num_groups, share_statistics
from mgexp.train.micro_batches import MicroBatch, split
from mgexp.train.precision import Precision
from mgexp.train.task import Loss


@dataclass(frozen=True)
class Normalizer:
    """uint8 RGB clips (B, 3, T, S, S) to ``dtype`` on ``device``: x/255, minus ``mean``, by ``std``."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    device: torch.device
    dtype: torch.dtype = torch.float32

    def __call__(self, clips: Tensor, flipped: Tensor | None = None) -> Tensor:
        """Keeps the memory format; those of ``flipped`` (B,) left for right."""
        shown = clips.to(self.device, non_blocking=True)
        if flipped is not None:
            mask = flipped.to(self.device, non_blocking=True).view(-1, 1, 1, 1, 1)
            shown = torch.where(mask, shown.flip(-1), shown)
        mean, std = self._constants
        return shown.to(self.dtype).sub_(mean).div_(std)

    @cached_property
    def _constants(self) -> tuple[Tensor, Tensor]:
        """Made once: a GPU would be waited for each time."""
        mean, std = (
            torch.tensor(values, device=self.device, dtype=self.dtype).view(1, -1, 1, 1, 1) * 255
            for values in (self.mean, self.std)
        )
        return mean, std


@dataclass(frozen=True)
class TrainStep:
    """Forward, backward and update. ``max_clips`` that go through ``model`` at once, 0: all.

    Where ``max_grad_norm`` is not 0 and the L2 norm of all gradients together is larger, they are scaled to it.

    ``model`` may be wrapped for several processes, which then have the same gradients and statistics of batch
    normalisation: those of the global mini-batch. ``scaler`` is that of ``precision``; where it is on, for fp16,
    the update waits for the device, to leave out a step whose gradients overflow.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Loss
    normalizer: Normalizer
    max_clips: int = 0
    precision: Precision = field(default_factory=Precision)
    scaler: torch.amp.GradScaler = field(
        default_factory=partial(torch.amp.GradScaler, enabled=False)
    )
    max_grad_norm: float = 0.0

    def __call__(self, batch: Batch, num_bn_groups: int, draws: Draws) -> Tensor:
        """The mean loss of this process's clips, on the device, finite or not.

        ``draws`` begins with the first of them. Raises ValueError where ``max_clips`` are too few.
        """
        loss = self.backward(batch, num_bn_groups, draws)
        if self.max_grad_norm:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def backward(self, batch: Batch, num_bn_groups: int, draws: Draws) -> Tensor:
        """The gradients of a step, without the update; gives its loss."""
        parts = split(len(batch.clips), num_bn_groups, self.max_clips)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        with one_sample(self.model) if len(parts) > 1 else nullcontext():
            losses = [self._backward(batch, part, draws, part is parts[-1]) for part in parts]
        if self._is_shared and num_bn_groups > 0:  # else they are those of all processes already
            share_statistics(self.model)
        return torch.stack(losses).sum()

    def _backward(self, batch: Batch, part: MicroBatch, draws: Draws, is_last: bool) -> Tensor:
        """Adds the part's gradients of the mean loss of the batch; gives its share of that loss."""
        set_num_groups(self.model, part.num_bn_groups)
        set_draws(self.model, draws.after(part.first))
        rows = slice(part.first, part.first + part.clips)
        own = batch.map(lambda tensor: tensor[rows])
        with nullcontext() if is_last else self._without_reduction():
            clips = self.normalizer(own.clips, own.flipped)
            with self.precision.autocast(clips.device):
                loss = self.loss(self.model(clips), own.labels)
            share = loss * (part.clips / len(batch.clips))
            self.scaler.scale(share).backward()  # type: ignore[no-untyped-call]
        return share.detach()

    @property
    def _is_shared(self) -> bool:
        return isinstance(self.model, DistributedDataParallel)

    def _without_reduction(self) -> AbstractContextManager[None]:
        """Gradients stay in this process until the last part."""
        if isinstance(self.model, DistributedDataParallel):
            reduced: Callable[[], AbstractContextManager[None]] = self.model.no_sync
            return reduced()
        return nullcontext()


def seed_step(seed: int, step: int) -> None:
    """Seeds torch's draws as a function of the step, the same in every process.

    Nothing of ours draws from torch's generator while it trains, dropout included: it is seeded for what a
    network of one's own draws, so that a resumed run draws the same.
    """
    digest = hashlib.blake2b(f"{seed} {step}".encode(), digest_size=7).digest()
    torch.manual_seed(int.from_bytes(digest, "little"))
