"""From the configuration to an optimizer; the learning rate comes from the plan of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from fvcore.common.config import CfgNode
from torch import nn

from mgexp.optim.groups import GroupRules, parameter_groups
from mgexp.optim.lamb import Lamb
from mgexp.optim.lars import Lars
from mgexp.optim.moments import Curve

Groups = Iterable[dict[str, Any]]


def build_optimizer(cfg: CfgNode, model: nn.Module) -> torch.optim.Optimizer:
    """What SOLVER.OPTIMIZING_METHOD asks for."""
    return METHODS[cfg.SOLVER.OPTIMIZING_METHOD](build_groups(cfg, model), cfg.SOLVER)


def build_groups(cfg: CfgNode, model: nn.Module) -> list[dict[str, Any]]:
    """The model's parameters, as the configuration decays them and lets them learn."""
    rules = GroupRules(
        weight_decay=cfg.SOLVER.WEIGHT_DECAY,
        bn_weight_decay=cfg.BN.WEIGHT_DECAY,
        decay_biases=not cfg.SOLVER.ZERO_WD_1D_PARAM,
        bias_lr_factor=cfg.SOLVER.BIAS_LR_FACTOR,
        head_lr_factor=cfg.SOLVER.HEAD_LR_FACTOR,
        adaptive=cfg.SOLVER.OPTIMIZING_METHOD in ADAPTIVE,
    )
    return parameter_groups(model, rules)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets the learning rate of every group: ``lr``, times the group's factor where it has one."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_factor", 1.0)


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
    groups: Groups, solver: CfgNode, period: int | None = None, curve: Curve = "cosine"
) -> torch.optim.Optimizer:
    rates = {"lr": solver.BASE_LR, "betas": solver.BETAS, "eps": solver.EPS}
    return Lamb(groups, **rates, period=period, curve=curve)


def _pmd_lamb(groups: Groups, solver: CfgNode) -> torch.optim.Optimizer:
    return _lamb(groups, solver, period=solver.PMD_PERIOD, curve=solver.PMD_CURVE)


METHODS: dict[str, Callable[[Groups, CfgNode], torch.optim.Optimizer]] = {
    "sgd": _sgd,
    "lars": _lars,
    "lamb": _lamb,
    "pmd_lamb": _pmd_lamb,
}
"""By SOLVER.OPTIMIZING_METHOD."""

ADAPTIVE = {"lars", "lamb", "pmd_lamb"}
"""Those that give each weight a step by its own size."""
