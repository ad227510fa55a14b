"""How far a tensor may go in one step, by its own size: the trust ratios of LARS and LAMB."""

from __future__ import annotations

import torch
from torch import Tensor

Tensors = list[Tensor] | tuple[Tensor, ...]


def trust_ratios(
    weights: Tensors,
    updates: Tensors,
    coefficient: float = 1.0,
    weight_decay: float = 0.0,
) -> tuple[Tensor, ...]:
    """``coefficient``·|w| / (|u| + ``weight_decay``·|w|) of each pair of tensors; 1 where |w| or |u| is 0.

    | | is the Euclidean norm of a whole tensor. The ratios are scalars on the device of the tensors, all on the
    same, and nothing waits for it.
    """
    sizes = torch.stack(torch._foreach_norm(weights))
    lengths = torch.stack(torch._foreach_norm(updates))
    ratios = coefficient * sizes / (lengths + weight_decay * sizes)
    return torch.where((sizes > 0) & (lengths > 0), ratios, 1.0).unbind()
