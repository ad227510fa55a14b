"""Make a data set in memory for the examples: videos of bars that move left or right, and clips of any shape.

A data set for multigrid must only do this: take a ``ClipRequest`` as its index, and return a clip of that shape.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from mgexp.multigrid import ClipRequest, Recipe

RECIPE = Recipe(
    clips=8,
    frames=8,
    crop=32,
    stride=1,
    jitter=(32, 40),
    base_lr=0.02,
    stage_epochs=(0, 16),
    max_epoch=24,
)
"""The baseline: 8 clips of 8 frames x 32 x 32 pixels a step. They are cut out of pictures of 32 to 40 pixels."""


class Bars(Dataset[tuple[Tensor, int]]):
    """``num_videos`` videos of shape (3, 16, 40, 40). The label says in which direction the bars move."""

    def __init__(self, recipe: Recipe, num_videos: int = 48) -> None:
        generator = torch.Generator().manual_seed(0)
        pictures = torch.rand(num_videos, 3, 1, 10, generator=generator).repeat_interleave(4, dim=3)
        shown = pictures.expand(-1, -1, 40, -1)
        self.recipe = recipe
        self.labels = [index % 2 for index in range(num_videos)]
        self.videos = [
            torch.stack([picture.roll((1 - 2 * label) * t, dims=2) for t in range(16)], dim=1)
            for picture, label in zip(shown, self.labels, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.videos)

    def __getitem__(self, request: ClipRequest) -> tuple[Tensor, int]:
        """Return a clip (3, frames, crop, crop) and its label. All draws come from the seed of the request."""
        # The seed depends on the position of the clip, and not on the worker that makes it. So a run gives the
        # same clips with any number of workers, and after a resume.
        rng = np.random.default_rng(request.seed)
        # None would stand for one frame from each segment of the video.
        assert request.stride_range is not None
        video = self.videos[request.index]
        stride = int(rng.integers(*request.stride_range, endpoint=True))
        start = int(rng.integers(video.shape[1]))
        times = (start + stride * torch.arange(request.frames)) % video.shape[1]
        least, largest = self.recipe.jitter
        # The smallest side shrinks with the crop, so that a smaller crop can show as much of the video.
        least = round(least * request.crop / self.recipe.crop)
        side = int(rng.integers(least, largest, endpoint=True))
        frames = F.interpolate(video[:, times], size=(side, side))
        top, left = rng.integers(side - request.crop + 1, size=2)
        return frames[:, :, top : top + request.crop, left : left + request.crop], self.labels[
            request.index
        ]


def small_network() -> nn.Module:
    """Build a 3D network for clips of any shape, with plain batch normalisation."""
    return nn.Sequential(
        nn.Conv3d(3, 8, kernel_size=(3, 5, 5), stride=(1, 2, 2), padding=(1, 2, 2), bias=False),
        nn.BatchNorm3d(8),
        nn.ReLU(),
        nn.Conv3d(8, 16, kernel_size=(3, 3, 3), stride=(1, 2, 2), padding=1, bias=False),
        nn.BatchNorm3d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(16, 2),
    )
