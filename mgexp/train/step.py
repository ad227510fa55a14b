"""One training step."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import nn

from mgexp.errors import TrainingError
from mgexp.train.task import Loss


@dataclass(frozen=True)
class Normalizer:
    """uint8 RGB clips (B, 3, T, S, S) to float32 on ``device``: x/255, minus ``mean``, by ``std``."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    device: torch.device

    def __call__(self, clips: torch.Tensor) -> torch.Tensor:
        """Keeps the memory format; float32."""
        mean, std = (
            torch.tensor(values, device=self.device).view(1, -1, 1, 1, 1) * 255
            for values in (self.mean, self.std)
        )
        return clips.to(self.device, non_blocking=True).float().sub_(mean).div_(std)


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    clips: torch.Tensor,
    labels: torch.Tensor,
    loss_of: Loss,
) -> float:
    """Forward, backward, update; returns the mean loss. Raises TrainingError if it is not finite."""
    loss = loss_of(model(clips), labels)
    value = float(loss.item())
    if not math.isfinite(value):
        raise TrainingError(f"the loss is {value}")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return value


def seed_step(seed: int, step: int, rank: int) -> None:
    """Seeds torch's draws (dropout) as a function of the step, so that a resumed run draws the same."""
    digest = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=7).digest()
    torch.manual_seed(int.from_bytes(digest, "little"))
