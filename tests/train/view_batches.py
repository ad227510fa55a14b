"""Batches of views for tests that need no videos."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Views:
    clips: torch.Tensor
    videos: torch.Tensor
    labels: torch.Tensor | None = None
    errors: tuple = ()


class FirstPixels(nn.Module):
    """Logits are the first pixels of a clip."""

    def forward(self, clips):
        return clips[:, 0, 0, 0, :3]
