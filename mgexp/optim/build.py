"""From the configuration to an optimizer; the learning rate comes from the plan of each step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mgexp.config.keys import Config, SolverKeys
from mgexp.models.names import is_head
from mgexp.optim.large_batch import Curve, Lamb, Lars


@dataclass(frozen=True)
class Settings:
    """Of a group: weight decay, what its learning rate is multiplied by, and whether it takes a trust ratio."""

    weight_decay: float
    lr_factor: float
    adapts: bool


@dataclass(frozen=True)
class GroupRules:
    """Settings by what a parameter is.

    Batch normalisation has its own decay (released code: 0) and no factor. Elsewhere a bias learns
    ``bias_lr_factor`` times as fast, the classifier ``head_lr_factor`` times, and its bias by both (TSM's
    released code: 2 and 5, biases without decay; all others here: 1). ``adaptive``: for LARS and LAMB, which
    give weights alone a trust ratio: a vector is small or zero at the start, and its norm says nothing of the
    step that it needs.
    """

    weight_decay: float
    bn_weight_decay: float
    decay_biases: bool = True
    bias_lr_factor: float = 1.0
    head_lr_factor: float = 1.0
    adaptive: bool = False

    def settings(self, name: str, parameter: Tensor, is_norm: bool) -> Settings:
        """Those of one of a network's parameters."""
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
    """Groups for an optimizer, of parameters with the same settings, in the order of their first.

    Grouped batch normalisation is a subclass of the plain one, so that the groups are the same in every phase.
    """
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    of_norms = {id(p) for m in norms for p in m.parameters(recurse=False)}
    groups: dict[Settings, list[nn.Parameter]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        groups[rules.settings(name, parameter, id(parameter) in of_norms)].append(parameter)
    return [{"params": params, **asdict(settings)} for settings, params in groups.items()]


Groups = Iterable[dict[str, Any]]


def build_optimizer(cfg: Config, model: nn.Module) -> torch.optim.Optimizer:
    """What SOLVER.OPTIMIZING_METHOD asks for."""
    return METHODS[cfg.SOLVER.OPTIMIZING_METHOD](build_groups(cfg, model), cfg.SOLVER)


def build_groups(cfg: Config, model: nn.Module) -> list[dict[str, Any]]:
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


def _sgd(groups: Groups, solver: SolverKeys) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        groups, lr=solver.BASE_LR, momentum=solver.MOMENTUM, nesterov=solver.NESTEROV
    )


def _lars(groups: Groups, solver: SolverKeys) -> torch.optim.Optimizer:
    return Lars(
        groups,
        lr=solver.BASE_LR,
        momentum=solver.MOMENTUM,
        nesterov=solver.NESTEROV,
        trust_coefficient=solver.TRUST_COEFFICIENT,
    )


def _lamb(
    groups: Groups, solver: SolverKeys, period: int | None = None, curve: Curve = "cosine"
) -> torch.optim.Optimizer:
    return Lamb(
        groups, solver.BASE_LR, betas=solver.BETAS, eps=solver.EPS, period=period, curve=curve
    )


def _pmd_lamb(groups: Groups, solver: SolverKeys) -> torch.optim.Optimizer:
    return _lamb(groups, solver, period=solver.PMD_PERIOD, curve=solver.PMD_CURVE)


METHODS: dict[str, Callable[[Groups, SolverKeys], torch.optim.Optimizer]] = {
    "sgd": _sgd,
    "lars": _lars,
    "lamb": _lamb,
    "pmd_lamb": _pmd_lamb,
}
"""By SOLVER.OPTIMIZING_METHOD."""

ADAPTIVE = {"lars", "lamb", "pmd_lamb"}
"""Those that give each weight a step by its own size."""
