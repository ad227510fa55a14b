"""The optimizer of a configuration: SGD with Nesterov momentum, one rate for all groups."""

import torch
from tiny import tiny_config
from torch import nn

from mgexp.optim.build import build_optimizer, set_lr


def test_two_steps_are_nesterov_momentum_by_hand(tmp_path):
    changes = {"SOLVER.BASE_LR": 0.1, "SOLVER.MOMENTUM": 0.9, "SOLVER.WEIGHT_DECAY": 0.0}
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    optimizer = build_optimizer(tiny_config(tmp_path, changes), model)
    for _ in range(2):
        model.weight.grad = torch.ones(1, 1)
        optimizer.step()
    # v: 1, 1.9; step: g + 0.9 v = 1.9, 2.71
    assert abs(model.weight.item() - (1 - 0.1 * (1.9 + 2.71))) < 1e-6


def test_every_group_gets_the_rate(tmp_path):
    model = nn.Sequential(nn.Conv3d(1, 1, 1), nn.BatchNorm3d(1))
    optimizer = build_optimizer(tiny_config(tmp_path), model)
    set_lr(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]
