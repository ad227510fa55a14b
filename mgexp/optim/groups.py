"""Which parameters are decayed, how fast they learn, and which of them take steps by their own size."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from mgexp.models.names import is_head


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
