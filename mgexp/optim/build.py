"""From the configuration to an optimizer; the learning rate comes from the plan of each step."""

from __future__ import annotations

import torch
from fvcore.common.config import CfgNode
from torch import nn

from mgexp.optim.groups import parameter_groups

METHODS = {"sgd": torch.optim.SGD}


def build_optimizer(cfg: CfgNode, model: nn.Module) -> torch.optim.Optimizer:
    """SGD with (Nesterov) momentum."""
    groups = parameter_groups(model, cfg.SOLVER.WEIGHT_DECAY, cfg.BN.WEIGHT_DECAY)
    return METHODS[cfg.SOLVER.OPTIMIZING_METHOD](
        groups,
        lr=cfg.SOLVER.BASE_LR,
        momentum=cfg.SOLVER.MOMENTUM,
        nesterov=cfg.SOLVER.NESTEROV,
    )


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets the learning rate of every group."""
    for group in optimizer.param_groups:
        group["lr"] = lr
