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


def views(rows, videos, labels=None, errors=()):
    """Clips of one pixel; ``rows`` are its channels."""
    clips = torch.tensor(rows, dtype=torch.uint8).view(len(rows), 1, 1, 1, 3)
    labels = None if labels is None else torch.tensor(labels)
    return Views(clips, torch.tensor(videos, dtype=torch.long), labels, errors)


class FirstPixels(nn.Module):
    """Logits are the first pixels of a clip."""

    def forward(self, clips):
        return clips[:, 0, 0, 0, :3]
