#!/usr/bin/env python3
"""Train a ViT of timm on pictures of two sizes: python examples/timm_loop.py (after pip install timm)

timm's networks take images, which are clips of one frame. Its optimizer, smoothed labels and average of the
weights are used as in its own training script. The schedule gives the size, the pictures and the learning rate of
each step. A run continues at any step: load the parts of ``Training``, and give ``train`` the first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

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


class Training:
    """What a run changes: a network, its optimizer, and the average of its weights, which is to be evaluated."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.average = model, ModelEmaV3(model, decay=0.99)
        # The groups have a factor each, which is 1 without layer decay.
        self.optimizer = create_optimizer_v2(
            model, opt="adamw", lr=PICTURES.base_lr, weight_decay=0.05
        )

    def parts(self) -> dict[str, Any]:
        """Return the parts by name. Each has a ``state_dict`` to save and to load."""
        return {"model": self.model, "optimizer": self.optimizer, "average": self.average}


def train(run: Training, first_step: int = 0) -> Iterator[tuple[StepPlan, float]]:
    """Train from ``first_step`` to the end, and yield the plan and the loss of each step."""
    videos = Bars(PICTURES)
    schedule = build_schedule(PICTURES, HALF_THEN_FULL, num_videos=len(videos))
    loader = DataLoader(videos, batch_sampler=StepSampler(schedule, seed=0, first_step=first_step))
    loss_of = LabelSmoothingCrossEntropy(0.1)
    for step, (clips, labels) in enumerate(loader, start=first_step):
        plan = schedule.plan_at(step)
        for group in run.optimizer.param_groups:
            group["lr"] = plan.lr * group.get("lr_scale", 1.0)
        loss = loss_of(run.model(clips[:, :, 0]), labels)
        run.optimizer.zero_grad()
        loss.backward()
        run.optimizer.step()
        run.average.update(run.model, step=step)
        yield plan, loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    run = Training(network())
    for plan, loss in train(run):
        print(
            f"step {plan.step}: {plan.clips} pictures of {plan.crop}² pixels, lr {plan.lr:.5f}, loss {loss:.3f}"
        )
