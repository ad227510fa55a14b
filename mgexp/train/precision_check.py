"""Compare every layer with fp32 at every shape, before training in reduced precision.

Some kernels for bf16 convolutions give wrong weight gradients: docs/gpu.md has what was measured. The check goes
layer by layer, because rounding adds up over a network. In whole networks, the cosines with the gradients in fp32
were 0.87 to 0.92 for correct convolutions, and 0.51 to 0.79 for wrong ones, so no threshold separates them safely.
A layer with the same inputs in both precisions shows its own rounding alone: 0.9999 or more against 0.85 or less.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from mgexp import dist
from mgexp.data.batches import Batch
from mgexp.dist import Processes
from mgexp.errors import listed, raise_problems
from mgexp.multigrid.batchnorm import set_num_groups
from mgexp.multigrid.schedule import StepShape
from mgexp.run.log import LOGGER
from mgexp.train.faults import explaining_memory
from mgexp.train.precision import Precision
from mgexp.train.step import Normalizer, keeping_random_state
from mgexp.train.task import Task

LARGEST_SCALE = 2.0**16
"""The first scale of torch's GradScaler. As there, the scale is halved while gradients overflow."""
MIN_COSINE = 0.99
MIN_RATIO, MAX_RATIO = 0.9, 1.1
"""Limits for the cosine with fp32, and for the norm relative to fp32. Measured layers lie far from them."""
NEGLIGIBLE = 1e-6
"""A tensor is not judged if its norm is a smaller share of the largest norm of its kind, in both precisions. This
is an assumption: the smallest measured tensor, a bias before a norm, had a share of 3e-7 and agreed."""
MAX_SHOWN = 4
EXACT = Precision("fp32")


def draw_batch(shape: StepShape, task: Task) -> Batch:
    """Draw smooth, noisy clips of four kinds. Clips of a kind have one label, so their gradients add up."""
    generator = torch.Generator().manual_seed(0)
    size = (shape.frames, shape.crop, shape.crop)
    kinds = torch.arange(shape.clips) % 4
    coarse = [max(2, -(-length // 8)) for length in size]
    common = torch.rand(4, 3, *coarse, generator=generator)
    own = torch.rand(shape.clips, 3, *coarse, generator=generator)
    clips = F.interpolate(255 * torch.lerp(own, common[kinds], 0.7), size, mode="trilinear")
    clips += 16 * torch.rand(clips.shape, generator=generator) - 8
    clips = clips.round().clamp(0, 255).byte().contiguous(memory_format=torch.channels_last_3d)
    return Batch(clips, task.draw_labels(4, generator)[kinds], ())


@dataclass(frozen=True)
class Agreement:
    """Comparison of one tensor, such as "weight gradient of blocks.0.conv", with fp32.

    ``ratio`` is its norm relative to fp32, and ``share`` its norm in fp32 relative to the largest of its kind.
    ``cosine`` and ``ratio`` are NaN if the tensor is not finite, ``cosine`` also if fp32 has only zeros.
    """

    tensor: str
    cosine: float
    ratio: float
    share: float

    @classmethod
    def of(cls, tensor: str, products: Sequence[float], largest: float) -> Agreement:
        """Compare by the inner products low·low, low·exact and exact·exact."""
        low_low, dot, exact_exact = products
        if not math.isfinite(low_low + dot):
            return cls(tensor, math.nan, math.nan, 1.0)
        low, exact = low_low**0.5, exact_exact**0.5
        if exact == 0:
            return cls(tensor, math.nan, math.inf if low else 1.0, 0.0)
        return cls(tensor, dot / (low * exact) if low else 0.0, low / exact, exact / largest)

    @property
    def is_negligible(self) -> bool:
        if self.share == 0:
            return self.ratio == 1.0
        return self.share < NEGLIGIBLE and self.share * self.ratio < NEGLIGIBLE

    @property
    def is_fault(self) -> bool:
        """Whether the tensor is not finite, or differs from fp32 by more than rounding."""
        is_close = self.cosine >= MIN_COSINE and MIN_RATIO <= self.ratio <= MAX_RATIO
        return not (self.is_negligible or is_close)

    def __str__(self) -> str:
        if math.isnan(self.ratio):
            return f"{self.tensor} is not finite"
        return f"{self.tensor} has cosine {self.cosine:.3f} and norm {self.ratio:.3g} times that in fp32"


def copy_to_check(model: nn.Module) -> nn.Module:
    """Copy ``model`` in training mode without dropout, so that every layer has a gradient."""
    clone = copy.deepcopy(model).train()
    for module in clone.modules():
        if isinstance(module, _DropoutNd):
            module.eval()
        # The last norm of a new residual block has only scales of 0, which would stop all gradients before it.
        if isinstance(module, _BatchNorm) and module.affine and not module.weight.any():
            nn.init.ones_(module.weight)
        # A module that works in place would overwrite the output that is compared.
        if hasattr(module, "inplace"):
            module.inplace = False  # type: ignore[assignment]
    return clone


class LayerCheck:
    """Check of the layers of ``model``, a copy that nobody else uses.

    The network runs once in low precision. Hooks repeat the forward and backward pass of each layer in fp32, from
    the same input and output gradient. ``unchecked`` names layers that do not turn one tensor of floats into one.
    """

    def __init__(self, model: nn.Module, task: Task, normalizer: Normalizer) -> None:
        self.model, self.task, self.normalizer = model, task, normalizer
        # Inner products by (layer, kind of tensor), see ``Agreement.of``.
        self._products: dict[tuple[str, str], list[float]] = {}
        # Several layers may share a parameter, and a layer may be called twice. Its gradient is the sum.
        self._exact: dict[nn.Parameter, Tensor] = {}
        self.unchecked: set[str] = set()

    def run(self, sample: Batch, num_groups: int, precision: Precision) -> list[Agreement]:
        """Compare the output, input gradient and weight gradients of each layer that has weights."""
        set_num_groups(self.model, num_groups)
        scale = LARGEST_SCALE if precision.name == "fp16" else 1.0
        while True:
            agreements = self._run_once(sample, precision, scale)
            if scale == 1.0 or not any(math.isnan(tensor.ratio) for tensor in agreements):
                return agreements
            scale /= 2

    def _run_once(self, sample: Batch, precision: Precision, scale: float) -> list[Agreement]:
        self._products, self._exact = {}, {}
        self.model.zero_grad(set_to_none=True)
        device = self.normalizer.device
        with self._hooks(), precision.backends():
            with precision.autocast(device):
                logits = self.model(self.normalizer(sample.clips))
                loss = self.task.loss(logits, sample.labels.to(device))
            (scale * loss).backward()  # type: ignore[no-untyped-call]
        for name, parameter in self.model.named_parameters():
            layer, _, kind = name.rpartition(".")
            exact = self._exact.get(parameter)
            if exact is not None and parameter.grad is not None and layer not in self.unchecked:
                self._compare(layer, f"{kind} gradient", parameter.grad, exact)
        largest: dict[str, float] = {}
        for (_, kind), products in self._products.items():
            largest[kind] = max(largest.get(kind, 0.0), products[2] ** 0.5)
        return [
            Agreement.of(f"{kind} of {layer}", products, largest[kind])
            for (layer, kind), products in self._products.items()
        ]

    @contextmanager
    def _hooks(self) -> Iterator[None]:
        handles = []
        for name, module in self.model.named_modules():
            is_leaf = next(module.children(), None) is None
            if is_leaf and next(module.parameters(), None) is not None:
                handles.append(module.register_forward_pre_hook(_with_own_inputs))
                handles.append(module.register_forward_hook(partial(self._watch, name)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _watch(self, name: str, module: nn.Module, inputs: tuple[Any, ...], out: object) -> None:
        """Check this call of a layer as soon as the backward pass has its gradients."""
        x = inputs[0] if len(inputs) == 1 else None
        if not (isinstance(x, Tensor) and isinstance(out, Tensor) and x.is_floating_point()):
            self.unchecked.add(name)
            return
        if not out.requires_grad:
            return
        # Hooks of tensors and not of the module, since those fail if the network changes ``out`` in place.
        low_x, low_out, version = x.detach(), out.detach(), out._version

        def check(grads: Sequence[Tensor | None]) -> None:
            kept = low_out if low_out._version == version else None
            self._check(name, module, low_x, kept, grads)

        register_multi_grad_hook([out, x] if x.requires_grad else [out], check)

    def _check(
        self,
        name: str,
        module: nn.Module,
        x: Tensor,
        out: Tensor | None,
        grads: Sequence[Tensor | None],
    ) -> None:
        """Repeat one layer in fp32. ``out`` is None if the network changed the output in place."""
        parameters = module.named_parameters(recurse=False)
        own = {name: parameter for name, parameter in parameters if parameter.requires_grad}
        grad_out = grads[0]
        assert grad_out is not None
        autocast = torch.autocast(x.device.type, enabled=False)
        with EXACT.backends(), autocast, torch.enable_grad():
            exact_x = x.float().requires_grad_()
            # module(x) would run these hooks again.
            exact_out = module.forward(exact_x)
            exact = torch.autograd.grad(exact_out, [exact_x, *own.values()], grad_out.float())
        if out is not None:
            self._compare(name, "output", out, exact_out)
        if len(grads) == 2 and grads[1] is not None:
            self._compare(name, "input gradient", grads[1], exact[0])
        for parameter, grad in zip(own.values(), exact[1:], strict=True):
            before = self._exact.get(parameter)
            self._exact[parameter] = grad if before is None else before + grad

    def _compare(self, layer: str, kind: str, low: Tensor, exact: Tensor) -> None:
        low, exact = low.detach().float(), exact.detach()
        products = self._products.setdefault((layer, kind), [0.0, 0.0, 0.0])
        for place, (left, right) in enumerate(((low, low), (low, exact), (exact, exact))):
            products[place] += float((left * right).sum())


def _with_own_inputs(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Give a layer tensors of its own: the gradient of an input that others read too would be the sum of all."""
    return tuple(
        tensor.view_as(tensor) if isinstance(tensor, Tensor) and tensor.requires_grad else tensor
        for tensor in inputs
    )


@dataclass(frozen=True)
class PrecisionCheck:
    """Result of the check at one shape. ``min_cosine`` is the lowest of judged tensors, 0 if one is not finite."""

    shape: StepShape
    faults: tuple[Agreement, ...]
    min_cosine: float

    def problem(self, precision: Precision) -> str:
        """Describe the wrong tensors with their shape and numbers; return "" if none is wrong."""
        if not self.faults:
            return ""
        return (
            f"{precision.name} is wrong here for {shape_text(self.shape)}: "
            f"{listed([str(fault) for fault in self.faults], MAX_SHOWN, '; ')} (needed: finite, cosine "
            f"{MIN_COSINE:g} or more, norm {MIN_RATIO:g} to {MAX_RATIO:g} of fp32's); set TRAIN.PRECISION fp32"
        )


def check_precision(
    model: nn.Module,
    shapes: Iterable[StepShape],
    task: Task,
    normalizer: Normalizer,
    precision: Precision,
) -> list[PrecisionCheck]:
    """Check every layer at every shape on a copy. ``shapes`` have the clips that go through the network at once.

    The model, its buffers and torch's random state stay the same.
    """
    device = normalizer.device
    with keeping_random_state(device):
        check = LayerCheck(copy_to_check(model), task, normalizer)
        checked = [_check_shape(check, shape, precision) for shape in shapes]
        if check.unchecked:
            names = listed(sorted(check.unchecked), MAX_SHOWN)
            LOGGER.info("layers that do not turn one tensor into one are not checked: %s", names)
    if device.type == "cuda":
        # The second model goes with ``check``. The run records the peak memory of training alone.
        del check
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    return checked


def _check_shape(check: LayerCheck, shape: StepShape, precision: Precision) -> PrecisionCheck:
    # A wrong kernel may end the process (measured: "Aborted" in bf16), so this line comes first.
    text = shape_text(shape)
    LOGGER.info("checking %s at %s", precision.name, text)
    # A BN group that spans processes has the clips of this process here, and at least two, which a norm needs.
    groups = max(1, shape.num_bn_groups)
    clips = shape.clips if shape.num_bn_groups > 0 else max(2, shape.clips)
    sample = draw_batch(StepShape(shape.frames, shape.crop, clips, groups), check.task)
    with explaining_memory(f"checking {precision.name} at {text}"):
        agreements = check.run(sample, groups, precision)
    judged = [tensor.cosine for tensor in agreements if not tensor.is_negligible]
    worst = min((0.0 if math.isnan(value) else value for value in judged), default=1.0)
    return PrecisionCheck(shape, tuple(tensor for tensor in agreements if tensor.is_fault), worst)


def shape_text(shape: StepShape) -> str:
    """Describe a shape, such as "64x4x68² in 8 BN groups"."""
    groups = shape.num_bn_groups
    if groups < 0:
        return f"{shape} in a BN group that spans {-groups} processes"
    return f"{shape} in {groups} BN group{'s' if groups > 1 else ''}"


def require_precision(
    model: nn.Module,
    shapes: Sequence[StepShape],
    task: Task,
    normalizer: Normalizer,
    precision: Precision,
    processes: Processes,
) -> None:
    """Raise InputError in every process if any finds ``precision`` wrong at a shape. fp32 needs no check."""
    if precision.is_exact:
        return
    checks = check_precision(model, shapes, task, normalizer, precision)
    problems = [problem for check in checks if (problem := check.problem(precision))]
    everyones = dist.merge(processes, {processes.rank: "\n".join(problems)})
    raise_problems([line for text in everyones.values() for line in text.splitlines()])
