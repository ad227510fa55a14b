#!/usr/bin/env python3
"""Train long+short in a plain PyTorch loop: python examples/plain_pytorch.py"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from bars import RECIPE, Bars, small_network
from torch import nn
from torch.utils.data import DataLoader

from mgexp.multigrid import (
    LONG_SHORT,
    StepPlan,
    StepSampler,
    build_schedule,
    group_batchnorm,
    set_num_groups,
)


def train(model: nn.Module, seed: int = 0) -> Iterator[tuple[StepPlan, float]]:
    """Train ``model``, and yield the plan and the loss of each step."""
    videos = Bars(RECIPE)
    schedule = build_schedule(RECIPE, LONG_SHORT, num_videos=len(videos))
    loader = DataLoader(videos, batch_sampler=StepSampler(schedule, seed))
    group_batchnorm(model)
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


if __name__ == "__main__":
    # This seed is for the first weights. The seed of `train` is for the order and the draws of the clips.
    torch.manual_seed(0)
    for plan, loss in train(small_network()):
        shape = f"{plan.clips} clips of {plan.frames} x {plan.crop}² pixels"
        print(
            f"step {plan.step}, epoch {plan.epoch:.2f}: {shape}, lr {plan.lr:.4f}, loss {loss:.3f}"
        )
