"""Which parameters are decayed, how strongly, and which of them take steps by their own size."""

from __future__ import annotations

from typing import Any

from torch import nn


def parameter_groups(
    model: nn.Module, weight_decay: float, bn_weight_decay: float
) -> list[dict[str, Any]]:
    """Two groups for an optimizer: everything else, then batch normalisation (released code: 0 decay).

    Grouped batch normalisation is a subclass of the plain one, so that the groups are the same in every phase.
    """
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    of_norms = [p for m in norms for p in m.parameters(recurse=False)]
    known = {id(p) for p in of_norms}
    others = [p for p in model.parameters() if id(p) not in known]
    return [
        {"params": others, "weight_decay": weight_decay},
        {"params": of_norms, "weight_decay": bn_weight_decay},
    ]


def adaptive_groups(
    model: nn.Module, weight_decay: float, bn_weight_decay: float
) -> list[dict[str, Any]]:
    """Three groups for LARS and LAMB: weights, then biases and batch normalisation, which take no trust ratio.

    A vector is small or zero at the start, and its norm says nothing of the step that it needs. Decay is as in
    ``parameter_groups``, whose first group is divided here.
    """
    others, norms = parameter_groups(model, weight_decay, bn_weight_decay)
    weights = [p for p in others["params"] if p.ndim > 1]
    vectors = [p for p in others["params"] if p.ndim <= 1]
    return [
        {"params": weights, "weight_decay": weight_decay, "adapts": True},
        {"params": vectors, "weight_decay": weight_decay, "adapts": False},
        {**norms, "adapts": False},
    ]
