"""Parameter groups and optimizers. The learning rate comes from the plan of each step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from mgexp.config.keys import Config, SolverKeys
from mgexp.errors import InputError
from mgexp.models.names import BLOCK, head_of
from mgexp.optim.large_batch import Lamb, Lars
from mgexp.registry import OPTIMIZERS

WITH_TRUST_RATIO = ("lars", "lamb", "pmd_lamb")


class Settings(NamedTuple):
    """What the parameters of a group share: ``adapts`` says whether they take a trust ratio (LARS, LAMB)."""

    weight_decay: float
    lr_scale: float  # multiplies the learning rate of a step; timm's name
    adapts: bool


def build_groups(cfg: Config, model: nn.Module) -> list[dict[str, Any]]:
    """Group the parameters of ``model`` by their settings, in the order of the first parameter of each group.

    Batch normalisation has its own decay (released code: 0) and no factor. For all other parameters
    the learning rate of a bias is multiplied by SOLVER.BIAS_LR_FACTOR, that of the classifier by
    SOLVER.HEAD_LR_FACTOR, and that of the classifier's bias by both. TSM's released code has the
    factors 2 and 5 and does not decay biases. All other configurations here have factors of 1. SOLVER.LAYER_DECAY
    multiplies the rate of each block once for every block after it (BEiT, arXiv 2106.08254). Raises InputError if
    a factor has nothing to multiply.
    """
    solver = cfg.SOLVER
    # Grouped batch normalisation is a subclass of the plain one, so the groups are the same in every phase.
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    of_norms = {id(p) for m in norms for p in m.parameters(recurse=False)}
    groups: dict[Settings, list[nn.Parameter]] = defaultdict(list)
    # As in PySlowFast, a network may name parameters without decay, such as tables of positions.
    undecayed: set[str] = getattr(model, "no_weight_decay", set)()
    names = [name for name, _ in model.named_parameters()]
    of_layer, head = layer_factors(names, solver.LAYER_DECAY), head_of(names)
    if solver.HEAD_LR_FACTOR != 1 and not head:
        problem = f"SOLVER.HEAD_LR_FACTOR = {solver.HEAD_LR_FACTOR:g} needs a classifier that is called head"
        raise InputError([f"{problem}, and the network has none: set it to 1"])
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        is_vector = parameter.ndim <= 1
        is_bias = is_vector and name.rpartition(".")[2] == "bias"
        has_no_decay = name in undecayed or (is_vector and solver.ZERO_WD_1D_PARAM)
        if id(parameter) in of_norms:
            settings = Settings(cfg.BN.WEIGHT_DECAY, of_layer[name], adapts=False)
        else:
            settings = Settings(
                weight_decay=0.0 if has_no_decay else solver.WEIGHT_DECAY,
                lr_scale=(solver.BIAS_LR_FACTOR if is_bias else 1.0)
                * (solver.HEAD_LR_FACTOR if name in head else 1.0)
                * of_layer[name],
                # Vectors take no trust ratio. They are small or zero at the start, so their norm
                # says nothing about the step that they need.
                adapts=solver.OPTIMIZING_METHOD in WITH_TRUST_RATIO and not is_vector,
            )
        groups[settings].append(parameter)
    return [{"params": params, **settings._asdict()} for settings, params in groups.items()]


def layer_factors(names: Sequence[str], layer_decay: float) -> dict[str, float]:
    """Return for each parameter ``layer_decay`` to the power of the number of layers after its own.

    ``names`` are in the network's order. Layer 0 is all before the first block. Each block is a layer, unless it
    has no parameters, as a pool. What follows the last block is the last layer. Raises InputError if the decay is
    not 1, and there is no list of blocks, or more than one.
    """
    blocks = {name: BLOCK.search(name) for name in names}
    numbers = sorted({int(match[1]) for match in blocks.values() if match})
    layer_of = {number: layer for layer, number in enumerate(numbers, start=1)}
    lists = {name[: match.start(1)] for name, match in blocks.items() if match}
    if layer_decay != 1 and len(lists) != 1:
        raise InputError(
            [
                f"SOLVER.LAYER_DECAY = {layer_decay:g} needs a network with one list called blocks, and this "
                f"one has {len(lists)}: set it to 1"
            ]
        )
    # The classifier keeps the whole rate: in MAE and BEiT it follows the blocks, in ResNets it is one of them.
    is_last_a_block = bool(names) and blocks[names[-1]] is not None
    last, layer, factors = len(numbers) + 1 - is_last_a_block, 0, {}
    for name, match in blocks.items():
        if match:
            layer = layer_of[int(match[1])]
        elif layer:
            layer = last
        factors[name] = layer_decay ** (last - layer)
    return factors


def build_optimizer(cfg: Config, model: nn.Module) -> torch.optim.Optimizer:
    """Build the optimizer that is registered as SOLVER.OPTIMIZING_METHOD. Raises InputError if there is none."""
    make = OPTIMIZERS.find(cfg.SOLVER.OPTIMIZING_METHOD)
    optimizer: torch.optim.Optimizer = make(build_groups(cfg, model), cfg.SOLVER)
    return optimizer


def sgd(groups: list[dict[str, Any]], solver: SolverKeys) -> torch.optim.Optimizer:
    # On a CPU the loop over parameters takes 11 ms a step for the quickstart's network, foreach 7, fused 3.
    # On a GPU torch chooses foreach, with which the fp16 scaler works as it does here.
    fused = True if groups[0]["params"][0].device.type == "cpu" else None
    return torch.optim.SGD(
        groups, solver.BASE_LR, momentum=solver.MOMENTUM, nesterov=solver.NESTEROV, fused=fused
    )


def lars(groups: list[dict[str, Any]], solver: SolverKeys) -> torch.optim.Optimizer:
    return Lars(
        groups,
        solver.BASE_LR,
        momentum=solver.MOMENTUM,
        nesterov=solver.NESTEROV,
        trust_coefficient=solver.TRUST_COEFFICIENT,
    )


def lamb(
    groups: list[dict[str, Any]], solver: SolverKeys, period: int | None = None
) -> torch.optim.Optimizer:
    return Lamb(
        groups,
        solver.BASE_LR,
        betas=solver.BETAS,
        eps=solver.EPS,
        period=period,
        curve=solver.PMD_CURVE,
    )


def pmd_lamb(groups: list[dict[str, Any]], solver: SolverKeys) -> torch.optim.Optimizer:
    return lamb(groups, solver, solver.PMD_PERIOD)


def adamw(groups: list[dict[str, Any]], solver: SolverKeys) -> torch.optim.Optimizer:
    """Make AdamW (Loshchilov and Hutter, ICLR 2019)."""
    fused = True if groups[0]["params"][0].device.type == "cpu" else None
    return torch.optim.AdamW(
        groups, solver.BASE_LR, betas=solver.BETAS, eps=solver.EPS, fused=fused
    )


for _make in (sgd, lars, lamb, pmd_lamb, adamw):
    OPTIMIZERS.register(_make)


def set_rates(
    optimizer: torch.optim.Optimizer, lr: float, weight_decay_factor: float = 1.0
) -> None:
    """Set the learning rate of every group to ``lr``, times the factor of the group if it has one.

    ``weight_decay_factor`` multiplies the weight decay that each group began with.
    """
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)
        # Kept beside the value that each call overwrites. A resume does not need it: groups come from the
        # configuration.
        first = group.setdefault("first_weight_decay", group.get("weight_decay", 0.0))
        group["weight_decay"] = first * weight_decay_factor
