"""LAMB, and LAMB with periodical moments decay."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Literal

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


Curve = Literal["cosine", "linear"]

CURVES: dict[Curve, Callable[[float], float]] = {
    "cosine": lambda position: (1 + math.cos(math.pi * position)) / 2,
    "linear": lambda position: 1 - position,
}
"""From the position in a period, 0 in its first step and 1 in its last, to the coefficient."""


def place(step: int, period: int | None) -> int:
    """Of the ``step``-th step, from 0: how many steps its period had before it."""
    return step if period is None else step % period


def coefficient(step: int, period: int | None, curve: Curve) -> float:
    """That of the ``step``-th step, from 0, where a period has ``period`` steps, 2 or more; 1 without periods."""
    return 1.0 if period is None else CURVES[curve](place(step, period) / (period - 1))


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


Pair = tuple[float, float]


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al., arXiv 1904.00962, algorithm 2); PMD-LAMB where there is a ``period``.

    With bias-corrected moments m and v of the gradient, u = m / (√v + eps) + weight_decay·w, and each tensor takes
    a step w ← w − lr·|w|/|u|·u. The paper's φ is the identity here, and a ratio with a norm of 0 is 1. Bias
    correction, which not every implementation has, holds for decay rates that vary: see ``coefficient``,
    which also says what of PMD-LAMB is our reading.

    ``period``: steps, 2 or more, in which the coefficient of the decay rates ``betas`` goes from 1 to 0 on
    ``curve``, counted for each parameter by its own steps, which the state holds. A group whose ``adapts`` is
    False has a ratio of 1: without a period this is AdamW. All parameters of a group lie on one device. Raises
    ValueError.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        period: int | None = None,
        curve: Curve = "cosine",
    ) -> None:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas = {betas} are not in [0, 1)")
        if period is not None and period < 2:
            raise ValueError(f"period = {period} steps: a period has 2 or more")
        if curve not in CURVES:
            raise ValueError(f"curve = {curve!r} is none of {', '.join(CURVES)}")
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "period": period, "curve": curve, "adapts": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Updates every parameter that has a gradient; gives what ``closure`` does."""
        with torch.enable_grad():
            loss = closure() if closure else None
        for group in self.param_groups:
            for params in self._alike(group["params"]):
                self._update(params, group)
        return loss

    def _alike(self, params: Iterable[Tensor]) -> list[list[Tensor]]:
        """Parameters with a gradient, those together that took as many steps and forgot as much."""
        found = defaultdict(list)
        for param in params:
            if param.grad is None:
                continue
            state = self.state[param]
            if not state:
                state["step"], state["starts"] = 0, (1.0, 1.0)
                state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(param) for _ in range(2))
            found[state["step"], state["starts"]].append(param)
        return list(found.values())

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """A step of parameters of one group that are alike."""
        updates = self._directions(params, group)
        if group["weight_decay"]:
            torch._foreach_add_(updates, params, alpha=group["weight_decay"])
        if group["adapts"]:
            torch._foreach_mul_(updates, trust_ratios(params, updates))
        torch._foreach_add_(params, updates, alpha=-group["lr"])

    def _directions(self, params: list[Tensor], group: dict[str, Any]) -> tuple[Tensor, ...]:
        """m / (√v + eps) of each parameter, after its moments m and v took in its gradient."""
        grads = [param.grad for param in params if param.grad is not None]
        means = [self.state[param]["exp_avg"] for param in params]
        squares = [self.state[param]["exp_avg_sq"] for param in params]
        (beta_mean, beta_square), (start_mean, start_square) = self._forget(params, group)
        torch._foreach_lerp_(means, grads, 1 - beta_mean)
        torch._foreach_mul_(squares, beta_square)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta_square)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, (1 - start_square) ** 0.5)
        torch._foreach_add_(roots, group["eps"])
        torch._foreach_mul_(roots, 1 - start_mean)
        return torch._foreach_div(means, roots)

    def _forget(self, params: list[Tensor], group: dict[str, Any]) -> tuple[Pair, Pair]:
        """The decay rates of the moments m and v in this step, and the weights that their starts have after it.

        A moment that started at zero is too small by 1 minus that weight, the product of its rates so far,
        whatever these were: the weights of its gradients sum to that. Counts the step; the first of a period
        begins with m = v = 0.
        """
        first = self.state[params[0]]
        kept = coefficient(first["step"], group["period"], group["curve"])
        starts = first["starts"]
        if place(first["step"], group["period"]) == 0:
            starts = (1.0, 1.0)
            moments = ("exp_avg", "exp_avg_sq")
            torch._foreach_zero_([self.state[param][one] for param in params for one in moments])
        rates = (kept * group["betas"][0], kept * group["betas"][1])
        starts = (starts[0] * rates[0], starts[1] * rates[1])
        for param in params:
            self.state[param]["step"] += 1
            self.state[param]["starts"] = starts
        return rates, starts
