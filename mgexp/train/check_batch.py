"""A mini-batch that looks like videos, to check and to time steps with where there need be no data."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from mgexp.data.clips import Batch
from mgexp.plan.step_shapes import StepShape
from mgexp.train.task import Task

COARSE = 8
"""Pixels and frames between the random values of a clip: neighbours are alike, as in videos."""
NOISE = 8
"""Grey levels, of a sensor's noise: half the width of a uniform distribution."""
NUM_KINDS = 4
"""Clips of one kind look alike and have the same label, as in a data set, so that their gradients add up."""
LIKENESS = 0.7
"""Share of what clips of one kind have in common."""


def draw_batch(shape: StepShape, task: Task, seed: int = 0) -> Batch:
    """Clips of a few kinds, each with its label: smooth, with some noise. torch's own draws are left alone."""
    generator = torch.Generator().manual_seed(seed)
    size = (shape.frames, shape.crop, shape.crop)
    small = [max(2, -(-length // COARSE)) for length in size]
    common = torch.rand(NUM_KINDS, 3, *small, generator=generator)
    kinds = torch.arange(shape.clips) % NUM_KINDS
    # Clip by clip: the batch is never in memory as float32.
    clips = torch.empty(shape.clips, *size, 3, dtype=torch.uint8)
    for clip, kind in zip(clips, kinds, strict=True):
        own = torch.rand(common[kind].shape, generator=generator)
        coarse = 255 * torch.lerp(own, common[kind], LIKENESS)
        smooth = F.interpolate(coarse[None], size, mode="trilinear")[0].permute(1, 2, 3, 0)
        noise = NOISE * (2 * torch.rand(smooth.shape, generator=generator) - 1)
        clip.copy_((smooth + noise).round().clamp(0, 255))
    labels = task.draw_labels(NUM_KINDS, generator)
    return Batch(clips.permute(0, 4, 1, 2, 3), labels[kinds], ())
