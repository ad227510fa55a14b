"""Parameter groups and optimizers. The learning rate comes from the plan of each step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mgexp.config.keys import Config
from mgexp.models.names import is_head
from mgexp.optim.large_batch import Lamb, Lars


@dataclass(frozen=True)
class Settings:
    """What the parameters of one group have in common.

    ``lr_factor`` multiplies their learning rate. ``adapts``: they take a trust ratio (LARS, LAMB).
    """

    weight_decay: float
    lr_factor: float
    adapts: bool


@dataclass(frozen=True)
class GroupRules:
    """Which settings a parameter gets.

    Batch normalisation has its own decay (released code: 0) and no factor. Elsewhere a bias learns
    ``bias_lr_factor`` times as fast, the classifier ``head_lr_factor`` times, and its bias by both. TSM's released
    code has 2 and 5, and biases without decay; all others here have 1.
    ``adaptive``: weights take a trust ratio. Vectors take none: they are small or zero at the start, and their
    norm says nothing about the step that they need.
    """

    weight_decay: float
    bn_weight_decay: float
    decay_biases: bool = True
    bias_lr_factor: float = 1.0
    head_lr_factor: float = 1.0
    adaptive: bool = False

    def settings(self, name: str, parameter: Tensor, is_norm: bool) -> Settings:
        """Return the settings of the parameter ``name`` of a network."""
        if is_norm:
            return Settings(self.bn_weight_decay, 1.0, adapts=False)
        is_bias = parameter.ndim <= 1
        return Settings(
            weight_decay=0.0 if is_bias and not self.decay_biases else self.weight_decay,
            lr_factor=(self.bias_lr_factor if is_bias else 1.0)
            * (self.head_lr_factor if is_head(name) else 1.0),
            adapts=self.adaptive and not is_bias,
        )


def parameter_groups(model: nn.Module, rules: GroupRules) -> list[dict[str, Any]]:
    """Group the parameters of ``model`` by their settings, in the order of the first parameter of each group.

    Grouped batch normalisation is a subclass of the plain one, so the groups are the same in every phase.
    """
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    of_norms = {id(p) for m in norms for p in m.parameters(recurse=False)}
    groups: dict[Settings, list[nn.Parameter]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        groups[rules.settings(name, parameter, id(parameter) in of_norms)].append(parameter)
    return [{"params": params, **asdict(settings)} for settings, params in groups.items()]


def build_groups(cfg: Config, model: nn.Module) -> list[dict[str, Any]]:
    """Group the parameters of ``model`` as SOLVER and BN decay them and let them learn."""
    rules = GroupRules(
        weight_decay=cfg.SOLVER.WEIGHT_DECAY,
        bn_weight_decay=cfg.BN.WEIGHT_DECAY,
        decay_biases=not cfg.SOLVER.ZERO_WD_1D_PARAM,
        bias_lr_factor=cfg.SOLVER.BIAS_LR_FACTOR,
        head_lr_factor=cfg.SOLVER.HEAD_LR_FACTOR,
        adaptive=cfg.SOLVER.OPTIMIZING_METHOD != "sgd",
    )
    return parameter_groups(model, rules)


def build_optimizer(cfg: Config, model: nn.Module) -> torch.optim.Optimizer:
    """Build the optimizer that SOLVER.OPTIMIZING_METHOD asks for."""
    solver, groups = cfg.SOLVER, build_groups(cfg, model)
    lr, momentum, nesterov = solver.BASE_LR, solver.MOMENTUM, solver.NESTEROV
    if solver.OPTIMIZING_METHOD == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=momentum, nesterov=nesterov)
    if solver.OPTIMIZING_METHOD == "lars":
        trust = solver.TRUST_COEFFICIENT
        return Lars(groups, lr, momentum=momentum, nesterov=nesterov, trust_coefficient=trust)
    # lamb and pmd_lamb, which is LAMB with a period
    period = solver.PMD_PERIOD if solver.OPTIMIZING_METHOD == "pmd_lamb" else None
    return Lamb(
        groups, lr, betas=solver.BETAS, eps=solver.EPS, period=period, curve=solver.PMD_CURVE
    )


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every group to ``lr``, times the factor of the group if it has one."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_factor", 1.0)
