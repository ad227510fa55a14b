"""LARS: momentum with a learning rate of its own for each layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from mgexp.optim.trust import trust_ratios


class Lars(torch.optim.Optimizer):
    """LARS (You et al., arXiv 1708.03888, algorithm 1).

    With the gradient g, λ = trust_coefficient·|w| / (|g| + weight_decay·|w|) of each tensor, or 1 where |w| or |g|
    is 0: v ← momentum·v + lr·λ·(g + weight_decay·w), w ← w − v. As in the paper the rate is inside the momentum,
    where torch's SGD has it outside: after a change of rate, earlier steps keep theirs. ``nesterov`` is not in the
    paper: it looks ahead as torch's SGD does, which this is where λ is 1 and the rate stays.

    A group whose ``adapts`` is False has a λ of 1. All parameters of a group lie on one device. Raises ValueError.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        momentum: float = 0.9,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
    ) -> None:
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum = {momentum} is not in [0, 1)")
        if trust_coefficient <= 0:
            raise ValueError(f"trust_coefficient = {trust_coefficient} is not more than 0")
        rates = {"lr": lr, "momentum": momentum, "nesterov": nesterov}
        trust = {"trust_coefficient": trust_coefficient, "adapts": True}
        super().__init__(params, {**rates, "weight_decay": weight_decay, **trust})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Updates every parameter that has a gradient; gives what ``closure`` does."""
        with torch.enable_grad():
            loss = closure() if closure else None
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            if params:
                self._update(params, group)
        return loss

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """A step of the parameters of one group."""
        momentum = group["momentum"]
        velocities = [self._velocity(param) for param in params]
        moves = self._moves(params, group)
        torch._foreach_mul_(velocities, momentum)
        torch._foreach_add_(velocities, moves)
        if group["nesterov"]:
            torch._foreach_add_(moves, velocities, alpha=momentum)
            torch._foreach_sub_(params, moves)
        else:
            torch._foreach_sub_(params, velocities)

    def _velocity(self, param: Tensor) -> Tensor:
        state = self.state[param]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(param)
        velocity: Tensor = state["momentum_buffer"]
        return velocity

    def _moves(self, params: list[Tensor], group: dict[str, Any]) -> tuple[Tensor, ...]:
        """lr·λ·(g + weight_decay·w) of each parameter."""
        decay = group["weight_decay"]
        grads = [param.grad for param in params if param.grad is not None]
        moves = torch._foreach_add(grads, params, alpha=decay)
        if group["adapts"]:
            ratios = trust_ratios(params, grads, group["trust_coefficient"], decay)
            torch._foreach_mul_(moves, ratios)
        torch._foreach_mul_(moves, group["lr"])
        return moves
