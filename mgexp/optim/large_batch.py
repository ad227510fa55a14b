"""LARS, LAMB, and LAMB with periodical moments decay (PMD): optimizers for large mini-batches.

PMD-LAMB is named in the abstract of LargeDet (ECCV 2020). In each period of 200 steps a coefficient goes from 1 to
0 and multiplies the decay rates of both moments, so that the accumulated moments weigh less and less. Then it
starts again. We did not have the published equations, curve and period, so this is our reading and not a
reproduction:

- The coefficient c is 1 in the first step of a period and 0 in its last, on a cosine or a line between them.
- A moment m of a gradient g becomes cβ·m + (1 − cβ)·g, so that its weights sum to 1 but for the start.
- A new period starts as a run does: the moments are zero, and corrected for that. After the last step of a
  period they hold the gradient of that step alone. Without a new start, this one mini-batch would have most of the
  weight in v for the next 30 steps (β₂ = 0.999, cosine).

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
"""From the position in a period, 0 in its first step and 1 in its last, to the coefficient."""


def trust_ratios(
    weights: Tensors,
    updates: Tensors,
    coefficient: float = 1.0,
    weight_decay: float = 0.0,
) -> tuple[Tensor, ...]:
    """Return ``coefficient``·|w| / (|u| + ``weight_decay``·|w|) of each pair of tensors; 1 if |w| or |u| is 0.

    | | is the Euclidean norm of a whole tensor. All tensors lie on one device, and so do the ratios, which are
    scalars. Nothing waits for the device.
    """
    sizes = torch.stack(torch._foreach_norm(weights))
    lengths = torch.stack(torch._foreach_norm(updates))
    ratios = coefficient * sizes / (lengths + weight_decay * sizes)
    return torch.where((sizes > 0) & (lengths > 0), ratios, 1.0).unbind()


def coefficient(step: int, period: int | None, curve: Curve) -> float:
    """Return the coefficient of ``step``, from 0, in periods of ``period`` steps, 2 or more; 1 without periods."""
    return 1.0 if period is None else CURVES[curve](step % period / (period - 1))


class _GroupOptimizer(torch.optim.Optimizer):
    """An optimizer that updates the parameters of a group together. They lie on one device."""

    # torch's _foreach functions update a list of tensors with few kernels. With one call for each tensor a GPU
    # would run hundreds of small kernels in each step.

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

    g is the gradient of a tensor w. λ = trust_coefficient·|w| / (|g| + weight_decay·|w|), or 1 if |w| or |g| is 0.
    A step is v ← momentum·v + lr·λ·(g + weight_decay·w), w ← w − v. As in the paper, the rate is inside the
    momentum: after a change of rate, earlier steps keep theirs. torch's SGD has it outside. ``nesterov`` is not in
    the paper. It looks ahead as torch's SGD does, and equals it if λ is 1 and the rate stays the same.

    In a group with ``adapts`` False, λ is 1. Raises ValueError for numbers out of range.
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

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            if not self.state[param]:
                self.state[param]["momentum_buffer"] = torch.zeros_like(param)
        velocities = [self.state[param]["momentum_buffer"] for param in params]
        momentum, decay = group["momentum"], group["weight_decay"]
        # lr·λ·(g + weight_decay·w) of each parameter
        grads = [param.grad for param in params if param.grad is not None]
        moves = torch._foreach_add(grads, params, alpha=decay)
        if group["adapts"]:
            ratios = trust_ratios(params, grads, group["trust_coefficient"], decay)
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

    With the bias-corrected moments m and v of the gradient, u = m / (√v + eps) + weight_decay·w, and each tensor
    takes the step w ← w − lr·|w|/|u|·u. The paper's φ is the identity here, and a ratio with a norm of 0 is 1. Not
    every implementation corrects the bias; here the correction also holds for decay rates that vary.

    ``period``: number of steps, 2 or more, in which the decay rates ``betas`` are multiplied by a coefficient that
    falls from 1 to 0 on ``curve``. Each parameter counts its own steps in its state. In a group with ``adapts``
    False the ratio is 1: without a period this is AdamW. Raises ValueError for numbers out of range.
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
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas = {betas} are not in [0, 1)")
        if period is not None and period < 2:
            raise ValueError(f"period = {period} steps: a period has 2 or more")
        if curve not in CURVES:
            raise ValueError(f"curve = {curve!r} is none of {', '.join(CURVES)}")
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "period": period, "curve": curve, "adapts": True})

    def _alike(self, params: list[Tensor]) -> list[list[Tensor]]:
        """Put together the parameters that took as many steps and forgot as much."""
        found = defaultdict(list)
        for param in params:
            state = self.state[param]
            if not state:
                state["step"], state["starts"] = 0, (1.0, 1.0)
                state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(param) for _ in range(2))
            found[state["step"], state["starts"]].append(param)
        return list(found.values())

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        updates = self._directions(params, group)
        if group["weight_decay"]:
            torch._foreach_add_(updates, params, alpha=group["weight_decay"])
        if group["adapts"]:
            torch._foreach_mul_(updates, trust_ratios(params, updates))
        torch._foreach_add_(params, updates, alpha=-group["lr"])

    def _directions(self, params: list[Tensor], group: dict[str, Any]) -> tuple[Tensor, ...]:
        """Take the gradients into the moments m and v; return m / (√v + eps) of each parameter."""
        grads = [param.grad for param in params if param.grad is not None]
        means = [self.state[param]["exp_avg"] for param in params]
        squares = [self.state[param]["exp_avg_sq"] for param in params]
        (beta_mean, beta_square), (start_mean, start_square) = self._forget(params, group)
        torch._foreach_lerp_(means, grads, 1 - beta_mean)
        torch._foreach_mul_(squares, beta_square)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta_square)
        # Where s is the weight of a start: m / (1 − s of m), divided by √(v / (1 − s of v)) + eps. The factor
        # 1 − s of m is moved into the denominator, so that the moments themselves stay as they are.
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, (1 - start_square) ** 0.5)
        torch._foreach_add_(roots, group["eps"])
        torch._foreach_mul_(roots, 1 - start_mean)
        return torch._foreach_div(means, roots)

    def _forget(self, params: list[Tensor], group: dict[str, Any]) -> tuple[Pair, Pair]:
        """Count the step. Return its decay rates of m and v, and the weights that their starts have after it.

        The weight of a start is the product of the rates so far. The weights of the gradients sum to 1 minus that,
        whatever the rates were, so a moment that started at zero is too small by this factor. The first step of
        a period begins with m = v = 0.
        """
        # All of ``params`` share these two values, see _alike.
        step, starts = self.state[params[0]]["step"], self.state[params[0]]["starts"]
        period = group["period"]
        kept = coefficient(step, period, group["curve"])
        if period and step % period == 0:
            starts = (1.0, 1.0)
            moments = ("exp_avg", "exp_avg_sq")
            torch._foreach_zero_([self.state[param][one] for param in params for one in moments])
        rates = (kept * group["betas"][0], kept * group["betas"][1])
        starts = (starts[0] * rates[0], starts[1] * rates[1])
        for param in params:
            self.state[param]["step"] += 1
            self.state[param]["starts"] = starts
        return rates, starts
