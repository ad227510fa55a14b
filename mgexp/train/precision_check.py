"""Compare every layer with fp32 at every shape, before training in reduced precision.

Some kernels for bf16 convolutions give wrong weight gradients: docs/gpu.md has what was measured. The check goes
layer by layer, because rounding adds up over a network. In whole networks, the cosines with the gradients in fp32
were 0.87 to 0.92 for correct convolutions, and 0.51 to 0.79 for wrong ones, so no threshold separates them safely.
A layer with the same inputs in both precisions shows its own rounding alone: 0.9999 or more against 0.85 or less.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mgexp import dist
from mgexp.dist import Processes
from mgexp.errors import listed, raise_problems
from mgexp.multigrid.batchnorm import set_num_groups
from mgexp.multigrid.schedule import StepShape
from mgexp.run.log import LOGGER
from mgexp.text import counted
from mgexp.train.faults import explaining_memory
from mgexp.train.precision import Precision
from mgexp.train.step import Normalizer, keeping_random_state

GRADIENT_SIZE = 2.0**-8
"""Standard deviation of the output gradients. Sums of millions of such numbers do not overflow in fp16."""
MIN_COSINE = 0.99
MIN_RATIO, MAX_RATIO = 0.9, 1.1
"""Limits for the cosine with fp32, and for the norm relative to fp32. Measured layers lie far from them."""
MAX_SHOWN = 4


class Agreement(NamedTuple):
    """Comparison of one tensor, such as "weight gradient of blocks.0.conv", with fp32."""

    tensor: str
    cosine: float
    ratio: float
    """The norm relative to that in fp32; NaN if the tensor is not finite."""

    @property
    def is_fault(self) -> bool:
        """Whether the tensor is not finite, or differs from fp32 by more than rounding."""
        return not (self.cosine >= MIN_COSINE and MIN_RATIO <= self.ratio <= MAX_RATIO)

    def __str__(self) -> str:
        if math.isnan(self.ratio):
            return f"{self.tensor} is not finite"
        return f"{self.tensor} has cosine {self.cosine:.3f} and norm {self.ratio:.3g} times that in fp32"


def compare(tensor: str, low: Tensor, exact: Tensor) -> Agreement:
    low, exact = low.detach().float().flatten(), exact.detach().flatten()
    if not low.isfinite().all():
        return Agreement(tensor, math.nan, math.nan)
    # A layer whose weights begin with zeros, such as the last norm of a residual block, gives zeros in both.
    if torch.equal(low, exact):
        return Agreement(tensor, 1.0, 1.0)
    low_norm, exact_norm = low.norm(), exact.norm()
    cosine = low.dot(exact) / (low_norm * exact_norm)
    return Agreement(tensor, cosine.item(), (low_norm / exact_norm).item())


def compare_layers(
    model: nn.Module, shape: StepShape, normalizer: Normalizer, precision: Precision
) -> list[Agreement]:
    """Compare the output and the gradients of each layer of ``model`` that has weights.

    The network runs once in ``precision``. Hooks cut it before and after each layer, and repeat the layer in fp32
    with the same input. Both get the same random output gradient. The log names layers that do not turn one tensor
    of floats into one.
    """
    agreements: list[Agreement] = []
    unchecked: list[str] = []

    def cut(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x
            for x in inputs
        )

    def check(name: str, layer: nn.Module, inputs: tuple[Any, ...], out: Any) -> Any:  # noqa: ANN401
        x = inputs[0] if len(inputs) == 1 else None
        if not (isinstance(x, Tensor) and isinstance(out, Tensor) and x.is_floating_point()):
            unchecked.append(name)
            return out
        if not out.requires_grad:
            return out
        exact_x = x.detach().float().requires_grad_(x.requires_grad)
        named = {"input": x, **dict(layer.named_parameters(recurse=False))}
        trained = [kind for kind, tensor in named.items() if tensor.requires_grad]
        low_tensors = [named[kind] for kind in trained]
        exact_tensors = [exact_x if kind == "input" else named[kind] for kind in trained]
        grad_out = GRADIENT_SIZE * torch.randn_like(out)
        with torch.autocast(x.device.type, enabled=False):
            low = torch.autograd.grad(out, low_tensors, grad_out)
            with Precision("fp32").backends():
                # layer(x) would run these hooks again.
                exact_out = layer.forward(exact_x)
                exact = torch.autograd.grad(exact_out, exact_tensors, grad_out.float())
        agreements.append(compare(f"output of {name}", out, exact_out))
        for kind, low_grad, exact_grad in zip(trained, low, exact, strict=True):
            agreements.append(compare(f"{kind} gradient of {name}", low_grad, exact_grad))
        # A copy, since the next layer may change it in place.
        return out.detach().requires_grad_().clone()

    model = copy.deepcopy(model).train()
    set_num_groups(model, shape.num_bn_groups)
    for name, module in model.named_modules():
        is_leaf = next(module.children(), None) is None
        if is_leaf and next(module.parameters(), None) is not None:
            module.register_forward_pre_hook(cut)
            module.register_forward_hook(partial(check, name))
    size = (shape.clips, shape.frames, shape.crop, shape.crop, 3)
    clips = torch.randint(256, size, dtype=torch.uint8).permute(0, 4, 1, 2, 3)
    with precision.backends(), precision.autocast(normalizer.device):
        model(normalizer(clips))
    if unchecked:
        names = listed(sorted({*unchecked}), MAX_SHOWN)
        LOGGER.info("layers that do not turn one tensor into one are not checked: %s", names)
    return agreements


def check_precision(
    model: nn.Module, shapes: Iterable[StepShape], normalizer: Normalizer, precision: Precision
) -> list[str]:
    """Compare every layer at every shape; return a problem for each shape at which ``precision`` is wrong.

    ``shapes`` have the clips that go through the network at once. The model, its buffers and torch's random state
    stay the same. fp32 needs no check.
    """
    if precision.name == "fp32":
        return []
    device, problems = normalizer.device, []
    for shape in shapes:
        # A BN group that spans processes has the clips of this process here, and at least two, which a norm needs.
        spans = shape.num_bn_groups < 0
        used = replace(shape, clips=max(2, shape.clips), num_bn_groups=1) if spans else shape
        text = f"{shape} in {counted(used.num_bn_groups, 'BN group')}"
        # A wrong kernel may end the process (measured: "Aborted" in bf16), so this line comes first.
        LOGGER.info("checking %s at %s", precision.name, text)
        with (
            keeping_random_state(device),
            explaining_memory(f"checking {precision.name} at {text}"),
        ):
            torch.manual_seed(0)
            agreements = compare_layers(model, used, normalizer, precision)
        if faults := [str(tensor) for tensor in agreements if tensor.is_fault]:
            problems.append(
                f"{precision.name} is wrong here for {text}: {listed(faults, MAX_SHOWN, '; ')} (needed: finite, "
                f"cosine {MIN_COSINE:g} or more, norm {MIN_RATIO:g} to {MAX_RATIO:g} of fp32's); set "
                "TRAIN.PRECISION fp32"
            )
    if device.type == "cuda":
        # The run records the peak memory of training alone.
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    return problems


def require_precision(
    model: nn.Module,
    shapes: Sequence[StepShape],
    normalizer: Normalizer,
    precision: Precision,
    processes: Processes,
) -> None:
    """Raise InputError in every process if any finds ``precision`` wrong at a shape."""
    problems = check_precision(model, shapes, normalizer, precision)
    everyones = dist.merge(processes, {processes.rank: "\n".join(problems)})
    raise_problems([line for text in everyones.values() for line in text.splitlines()])
