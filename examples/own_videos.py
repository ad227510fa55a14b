#!/usr/bin/env python3
"""Train your own loop on your own videos: python examples/own_videos.py my_videos/train my_videos/val

Each folder has a folder of videos for each class.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from mgexp.data import Videos, videos_in
from mgexp.multigrid import (
    LONG_SHORT,
    Recipe,
    StepPlan,
    StepSampler,
    build_schedule,
    group_batchnorm,
    set_num_groups,
)

RECIPE = Recipe(
    clips=8,
    frames=8,
    crop=64,
    stride=2,
    jitter=(64, 80),
    base_lr=0.05,
    stage_epochs=(0, 6),
    max_epoch=8,
)


def small_network(num_classes: int) -> nn.Module:
    """Build a network of two convolutions, which takes clips of every shape."""
    return nn.Sequential(
        nn.Conv3d(3, 16, 3, stride=2, padding=1),
        nn.BatchNorm3d(16),
        nn.ReLU(),
        nn.Conv3d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm3d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(32, num_classes),
    )


def train(model: nn.Module, folder: str, workers: int = 2) -> Iterator[tuple[StepPlan, float]]:
    """Train ``model`` on the videos of ``folder``, and yield the plan and the loss of each step."""
    videos, _ = videos_in(folder)
    schedule = build_schedule(RECIPE, LONG_SHORT, num_videos=len(videos))
    sampler = StepSampler(schedule, seed=0)
    loader = DataLoader(Videos(videos, RECIPE), batch_sampler=sampler, num_workers=workers)
    group_batchnorm(model).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=RECIPE.base_lr, momentum=0.9)
    for step, (clips, labels) in enumerate(loader):
        plan = schedule.plan_at(step)
        for group in optimizer.param_groups:
            group["lr"] = plan.lr
        set_num_groups(model, plan.num_bn_groups)
        loss = F.cross_entropy(model(clips), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield plan, loss.item()


@torch.no_grad()
def accuracy(model: nn.Module, folder: str, classes: list[str]) -> float:
    """Return the share of the videos of ``folder`` whose centre clip ``model`` classifies correctly."""
    videos, _ = videos_in(folder, classes)
    model.eval()
    batches = DataLoader(Videos(videos, RECIPE), batch_size=8)
    right = sum(int((model(clips).argmax(1) == labels).sum()) for clips, labels in batches)
    return right / len(videos)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    train_folder, val_folder = sys.argv[1:]
    torch.manual_seed(0)
    names = videos_in(train_folder)[1]
    network = small_network(num_classes=len(names))
    for plan, loss in train(network, train_folder):
        shape = f"{plan.clips} clips of {plan.frames} x {plan.crop}² pixels"
        print(f"step {plan.step}, epoch {plan.epoch:.2f}: {shape}, loss {loss:.3f}")
    print(f"accuracy: {accuracy(network, val_folder, names):.1%}")
