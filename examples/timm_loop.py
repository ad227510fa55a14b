#!/usr/bin/env python3
"""Train a ViT of timm on pictures of two sizes: python examples/timm_loop.py (after pip install timm)

timm's networks take images, which are clips of one frame. Its optimizer, smoothed labels and average of the
weights are used as in its own training script. The schedule gives the size, the pictures and the learning rate of
each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import timm
import torch
from bars import RECIPE, Bars
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3
from torch import nn
from torch.utils.data import DataLoader

from mgexp.multigrid import Multigrid, StepPlan, StepSampler, build_schedule

PICTURES = replace(RECIPE, frames=1, base_lr=0.001)
# At half the size a ViT with dynamic_img_size interpolates its positions. AdamW's rate follows the square root.
HALF_THEN_FULL = Multigrid(
    ((1.0, 0.5), (1.0, 1.0)), epoch_factor=1.5, fine_tuning=True, lr_scaling="sqrt", bn_base_size=0
)


def network() -> nn.Module:
    """Make a small ViT for pictures of 32 pixels and of any other multiple of 8."""
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4}
    made: nn.Module = timm.models.VisionTransformer(num_classes=2, dynamic_img_size=True, **sizes)
    return made


def train(model: nn.Module, first_step: int = 0) -> Iterator[tuple[StepPlan, float]]:
    """Train ``model``, and yield the plan and the loss of each step."""
    videos = Bars(PICTURES)
    schedule = build_schedule(PICTURES, HALF_THEN_FULL, num_videos=len(videos))
    loader = DataLoader(videos, batch_sampler=StepSampler(schedule, seed=0, first_step=first_step))
    optimizer = create_optimizer_v2(model, opt="adamw", lr=PICTURES.base_lr, weight_decay=0.05)
    average, loss_of = ModelEmaV3(model, decay=0.99), LabelSmoothingCrossEntropy(0.1)
    for step, (clips, labels) in enumerate(loader, start=first_step):
        plan = schedule.plan_at(step)
        for group in optimizer.param_groups:
            # timm's groups have a factor each, if there is layer decay.
            group["lr"] = plan.lr * group.get("lr_scale", 1.0)
        loss = loss_of(model(clips[:, :, 0]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model, step=step)
        yield plan, loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    for plan, loss in train(network()):
        print(
            f"step {plan.step}: {plan.clips} pictures of {plan.crop}² pixels, lr {plan.lr:.5f}, loss {loss:.3f}"
        )
