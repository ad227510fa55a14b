"""From the configuration to an optimizer; the learning rate comes from the plan of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from fvcore.common.config import CfgNode
from torch import nn

from mgexp.optim.groups import adaptive_groups, parameter_groups
from mgexp.optim.lamb import Lamb
from mgexp.optim.lars import Lars
from mgexp.optim.moments import Curve

Groups = Iterable[dict[str, Any]]


def build_optimizer(cfg: CfgNode, model: nn.Module) -> torch.optim.Optimizer:
    """What SOLVER.OPTIMIZING_METHOD asks for."""
    grouped, make = METHODS[cfg.SOLVER.OPTIMIZING_METHOD]
    return make(grouped(model, cfg.SOLVER.WEIGHT_DECAY, cfg.BN.WEIGHT_DECAY), cfg.SOLVER)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets the learning rate of every group."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def _sgd(groups: Groups, solver: CfgNode) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        groups, lr=solver.BASE_LR, momentum=solver.MOMENTUM, nesterov=solver.NESTEROV
    )


def _lars(groups: Groups, solver: CfgNode) -> torch.optim.Optimizer:
    return Lars(
        groups,
        lr=solver.BASE_LR,
        momentum=solver.MOMENTUM,
        nesterov=solver.NESTEROV,
        trust_coefficient=solver.TRUST_COEFFICIENT,
    )


def _lamb(
    groups: Groups, solver: CfgNode, period: int = 1, curve: Curve = "cosine"
) -> torch.optim.Optimizer:
    rates = {"lr": solver.BASE_LR, "betas": solver.BETAS, "eps": solver.EPS}
    return Lamb(groups, **rates, period=period, curve=curve)


def _pmd_lamb(groups: Groups, solver: CfgNode) -> torch.optim.Optimizer:
    return _lamb(groups, solver, period=solver.PMD_PERIOD, curve=solver.PMD_CURVE)


METHODS: dict[str, tuple[Callable[..., Groups], Callable[..., torch.optim.Optimizer]]] = {
    "sgd": (parameter_groups, _sgd),
    "lars": (adaptive_groups, _lars),
    "lamb": (adaptive_groups, _lamb),
    "pmd_lamb": (adaptive_groups, _pmd_lamb),
}
"""By SOLVER.OPTIMIZING_METHOD: how it groups the parameters, and what makes it."""
