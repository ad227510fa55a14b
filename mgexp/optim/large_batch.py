"""LARS, LAMB, and LAMB with periodical moments decay (PMD): optimizers for large mini-batches.

PMD-LAMB is that of LargeDet (ECCV 2020). In each period of 200 steps (figure 2) a coefficient
falls from 1 to 0 and multiplies the decay rates of both moments, so that the accumulated moments
weigh less and less. Then it starts again. We did not have the published equations and curve, so
this is our reading and not a reproduction:

- The coefficient c is 1 in the first step of a period and 0 in its last. Between them it follows a
  cosine or a line.
- With a gradient g, a moment m becomes cβ·m + (1 − cβ)·g. So the weights of all gradients and of
  the start sum to 1.
- Each period starts like a run: the moments are zero, and the bias that this causes is corrected.
  After the last step of a period the moments hold the gradient of that step alone. Without a new
  start, this one mini-batch would have most of the weight in v for the next 30 steps (β₂ = 0.999,
  cosine).

Without a period, c is always 1, and this is LAMB.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor

Tensors = list[Tensor] | tuple[Tensor, ...]
Curve = Literal["cosine", "linear"]

CURVES: dict[Curve, Callable[[float], float]] = {
    "cosine": lambda position: (1 + math.cos(math.pi * position)) / 2,
    "linear": lambda position: 1 - position,
}
"""The coefficient as a function of the position in a period: 0 in its first step, 1 in its last."""


def trust_ratios(
    weights: Tensors,
    updates: Tensors,
    coefficient: float = 1.0,
    weight_decay: float = 0.0,
) -> tuple[Tensor, ...]:
    """Return ``coefficient``·|w| / (|u| + ``weight_decay``·|w|) of each pair of tensors; 1 if |w| or |u| is 0.

    | | is the Euclidean norm of a whole tensor. All tensors must be on one device. The ratios are
    scalars on the same device.
    """
    # The ratios stay on the device, and ``torch.where`` replaces an ``if``: so the CPU never waits.
    sizes = torch.stack(torch._foreach_norm(weights))
    lengths = torch.stack(torch._foreach_norm(updates))
    ratios = coefficient * sizes / (lengths + weight_decay * sizes)
    # A norm of 0 may have given NaN or infinity, which is not taken.
    return torch.where((sizes > 0) & (lengths > 0), ratios, 1.0).unbind()


def coefficient(step: int, period: int | None, curve: Curve) -> float:
    """Return the coefficient of ``step``, from 0; it is 1 without a ``period``, which has 2 steps or more."""
    return 1.0 if period is None else CURVES[curve](step % period / (period - 1))


class _GroupOptimizer(torch.optim.Optimizer):
    """An optimizer that updates the parameters of a group together. They must be on one device."""

    # torch's _foreach functions update a list of tensors with few kernels. With one call for each
    # tensor a GPU would run hundreds of small kernels in each step.

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient; return what ``closure`` returns."""
        with torch.enable_grad():
            loss = closure() if closure else None
        for group in self.param_groups:
            for params in self._alike([p for p in group["params"] if p.grad is not None]):
                self._update(params, group)
        return loss

    def _alike(self, params: list[Tensor]) -> list[list[Tensor]]:
        """Split parameters with a gradient into lists that can be updated together."""
        return [params] if params else []

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        raise NotImplementedError


class Lars(_GroupOptimizer):
    """LARS (You et al., arXiv 1708.03888, algorithm 1).

    g is the gradient of a tensor w. λ = trust_coefficient·|w| / (|g| + weight_decay·|w|), or 1 if
    |w| or |g| is 0. A step is v ← momentum·v + lr·λ·(g + weight_decay·w), w ← w − v. In a group
    with ``adapts`` False, λ is 1.

    As in the paper, v includes the learning rate. So after a change of the rate, the gradients of
    earlier steps keep their old rate. torch's SGD multiplies v by the new rate. ``nesterov`` is not
    in the paper. It works as in torch's SGD, and gives the same steps if λ is 1 and the rate does
    not change. ``momentum`` is in [0, 1), and ``trust_coefficient`` is more than 0.
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
        rates = {"lr": lr, "momentum": momentum, "nesterov": nesterov}
        trust = {"trust_coefficient": trust_coefficient, "adapts": True}
        super().__init__(params, {**rates, "weight_decay": weight_decay, **trust})

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            if not self.state[param]:
                self.state[param]["momentum_buffer"] = torch.zeros_like(param)
        velocities = [self.state[param]["momentum_buffer"] for param in params]
        momentum, weight_decay = group["momentum"], group["weight_decay"]
        # ``moves`` becomes lr·λ·(g + weight_decay·w) of each parameter. As in the paper, λ is
        # computed from the gradient without the decay.
        grads = [param.grad for param in params if param.grad is not None]
        moves = torch._foreach_add(grads, params, alpha=weight_decay)
        if group["adapts"]:
            ratios = trust_ratios(params, grads, group["trust_coefficient"], weight_decay)
            torch._foreach_mul_(moves, ratios)
        torch._foreach_mul_(moves, group["lr"])
        torch._foreach_mul_(velocities, momentum)
        torch._foreach_add_(velocities, moves)
        if group["nesterov"]:
            torch._foreach_add_(moves, velocities, alpha=momentum)
            torch._foreach_sub_(params, moves)
        else:
            torch._foreach_sub_(params, velocities)


Pair = tuple[float, float]


class Lamb(_GroupOptimizer):
    """LAMB (You et al., arXiv 1904.00962, algorithm 2), and PMD-LAMB if there is a ``period``.

    With the bias-corrected moments m and v of the gradient, u = m / (√v + eps) + weight_decay·w,
    and each tensor takes the step w ← w − lr·|w|/|u|·u. The paper's φ is the identity here. The
    ratio |w|/|u| is 1 if one of the norms is 0. Not every implementation corrects the bias. Here
    the correction is also exact for decay rates that vary.

    A ``period`` has 2 or more steps. Within it the decay rates ``betas``, in [0, 1), are multiplied
    by a coefficient that falls from 1 to 0 along ``curve``. Each parameter counts its own steps in
    its state. In a group with ``adapts`` False the ratio is 1, which without a period is AdamW.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        betas: Pair = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        period: int | None = None,
        curve: Curve = "cosine",
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "period": period, "curve": curve, "adapts": True})

    def _alike(self, params: list[Tensor]) -> list[list[Tensor]]:
        """Group the parameters by their number of steps and by the weights of their starts."""
        # A step skips a parameter without a gradient, so its count may differ from that of the
        # others.
        lists = defaultdict(list)
        for param in params:
            state = self.state[param]
            if not state:
                state["step"], state["starts"] = 0, (1.0, 1.0)
                state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(param) for _ in range(2))
            lists[state["step"], state["starts"]].append(param)
        return list(lists.values())

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        updates = self._directions(params, group)
        if group["weight_decay"]:
            torch._foreach_add_(updates, params, alpha=group["weight_decay"])
        if group["adapts"]:
            torch._foreach_mul_(updates, trust_ratios(params, updates))
        torch._foreach_add_(params, updates, alpha=-group["lr"])

    def _directions(self, params: list[Tensor], group: dict[str, Any]) -> tuple[Tensor, ...]:
        """Update the moments m and v by the gradients; return m / (√v + eps) of each parameter."""
        grads = [param.grad for param in params if param.grad is not None]
        means = [self.state[param]["exp_avg"] for param in params]
        squares = [self.state[param]["exp_avg_sq"] for param in params]
        (beta_mean, beta_square), (start_mean, start_square) = self._forget(params, group)
        torch._foreach_lerp_(means, grads, 1 - beta_mean)
        torch._foreach_mul_(squares, beta_square)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta_square)
        # With s_m and s_v, the weights of the starts of m and v, the result is m/(1 − s_m) divided
        # by √(v/(1 − s_v)) + eps. We multiply the denominator by 1 − s_m, so that the stored m is
        # not changed.
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, (1 - start_square) ** 0.5)
        torch._foreach_add_(roots, group["eps"])
        torch._foreach_mul_(roots, 1 - start_mean)
        return torch._foreach_div(means, roots)

    def _forget(self, params: list[Tensor], group: dict[str, Any]) -> tuple[Pair, Pair]:
        """Count the step. Return its decay rates of m and v, and the weights of their starts after it."""
        # The weight of a start is the product of all rates so far. Whatever the rates were, the weights of the
        # gradients sum to 1 minus this product. So a moment that started at zero is too small by this factor.
        # All of ``params`` have the same two values, see ``_alike``.
        step, starts = self.state[params[0]]["step"], self.state[params[0]]["starts"]
        period = group["period"]
        kept = coefficient(step, period, group["curve"])
        if period and step % period == 0:
            starts = (1.0, 1.0)
            moments = ("exp_avg", "exp_avg_sq")
            torch._foreach_zero_(
                [self.state[param][moment] for param in params for moment in moments]
            )
        rates = (kept * group["betas"][0], kept * group["betas"][1])
        starts = (starts[0] * rates[0], starts[1] * rates[1])
        for param in params:
            self.state[param]["step"] += 1
            self.state[param]["starts"] = starts
        return rates, starts
