"""Each layer in low precision against the same layer in fp32, on the same inputs and output gradients.

Why layer by layer: rounding adds up over a network. Measured (SlowFast of depth 18, 32 channels, the shapes of the
quickstart, bf16 on a CPU): gradients of the whole network have cosines with their fp32 ones of 0.96 to 0.98 in the
median, of 0.87 to 0.92 for the worst sound convolutions and down to -0.36 for scales of 4 channels; a convolution
whose backward is wrong had 0.51 to 0.79. No threshold divides these safely, and in a deeper network less so. On
the same inputs a sound layer has the rounding of one layer only (see precision_check.py).
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from mgexp.data.clips import Batch
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d, set_num_groups
from mgexp.train.precision import Precision
from mgexp.train.step import Normalizer
from mgexp.train.task import Loss

LARGEST_SCALE = 2.0**16
"""Where torch's GradScaler starts; like it, the scale is halved while gradients overflow."""

EXACT = Precision("fp32")


@dataclass(frozen=True)
class Agreement:
    """How one tensor of a layer compares with fp32: ``tensor`` is such as "weight gradient of blocks.0.conv".

    ``cosine`` and ``ratio`` of the norms, low to fp32; ``share``: the fp32 norm as a share of the largest of its
    kind in the model. They are NaN where ``is_finite`` is not so, or where the fp32 values are all 0.
    """

    tensor: str
    is_finite: bool
    cosine: float
    ratio: float
    share: float


@dataclass
class Comparison:
    """Sums over the chunks of one tensor: enough for cosine and norms."""

    kind: str
    layer: str
    low_low: float = 0.0
    low_exact: float = 0.0
    exact_exact: float = 0.0

    def add(self, low: Tensor, exact: Tensor) -> None:
        """Takes a part of the tensor, or all of it."""
        low, exact = low.detach().float(), exact.detach()
        self.low_low += float((low * low).sum())
        self.low_exact += float((low * exact).sum())
        self.exact_exact += float((exact * exact).sum())

    def agreement(self, largest: float) -> Agreement:
        """``largest``: fp32 norm of this kind in the model."""
        name = f"{self.kind} of {self.layer}"
        if not math.isfinite(self.low_low + self.low_exact):
            return Agreement(name, False, math.nan, math.nan, math.nan)
        low, exact = self.low_low**0.5, self.exact_exact**0.5
        if exact == 0:
            return Agreement(name, True, math.nan, math.inf if low else 1.0, 0.0)
        cosine = self.low_exact / (low * exact) if low else 0.0
        return Agreement(name, True, cosine, low / exact, exact / largest)


def copy_to_check(model: nn.Module) -> nn.Module:
    """A copy in training mode without dropout, all of whose branches have gradients.

    Where all scales of a norm are 0, as at the end of each residual block of a new model, the convolutions
    before it have no gradient, and nothing could be seen of them: there the copy has scales of 1.
    """
    clone = copy.deepcopy(model).train()
    for module in clone.modules():
        if isinstance(module, _DropoutNd):
            module.eval()
        if isinstance(module, _BatchNorm) and module.affine and not module.weight.any():
            nn.init.ones_(module.weight)
        if hasattr(module, "inplace"):  # hooks keep what such a module would overwrite
            module.inplace = False  # type: ignore[assignment]
    return clone


@dataclass
class LayerCheck:
    """Compares the layers of ``model``, a copy that nobody else uses, on ``normalizer.device``."""

    model: nn.Module
    loss: Loss
    normalizer: Normalizer
    _found: dict[tuple[str, str], Comparison] = field(default_factory=dict)
    _exact: dict[str, Tensor] = field(default_factory=dict)
    _saved: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def run(self, sample: Batch, num_groups: int, precision: Precision) -> list[Agreement]:
        """Of every layer with weights: its output, its input's gradient and those of its weights.

        The whole batch at once in ``precision``, as a training step has it; fp32 in BN group after BN group.
        fp16: at the largest loss scale at which all gradients are finite, or at 1.
        """
        set_num_groups(self.model, num_groups)
        scale = LARGEST_SCALE if precision.name == "fp16" else 1.0
        while True:
            found = self._run_once(sample, num_groups, precision, scale)
            if scale == 1.0 or all(one.is_finite for one in found):
                return found
            scale /= 2

    def _run_once(
        self, sample: Batch, num_groups: int, precision: Precision, scale: float
    ) -> list[Agreement]:
        self._found, self._exact, self._saved = {}, {}, {}
        self.model.zero_grad(set_to_none=True)
        device = self.normalizer.device
        with self._watching(num_groups), precision.backends(), warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "Full backward hook is firing"
            )  # clips have no gradient
            with precision.autocast(device):
                logits = self.model(self.normalizer(sample.clips))
                loss = self.loss(logits, sample.labels.to(device))
            (scale * loss).backward()  # type: ignore[no-untyped-call]
        for name, parameter in self.model.named_parameters():
            if name in self._exact and parameter.grad is not None:
                layer, _, kind = name.rpartition(".")
                self._compare(layer, f"{kind} gradient", parameter.grad, self._exact[name])
        return self._agreements()

    def _agreements(self) -> list[Agreement]:
        largest: dict[str, float] = {}
        for one in self._found.values():
            largest[one.kind] = max(largest.get(one.kind, 0.0), one.exact_exact**0.5)
        return [one.agreement(largest[one.kind]) for one in self._found.values()]

    @contextmanager
    def _watching(self, num_groups: int) -> Iterator[None]:
        handles = []
        for name, module in self.model.named_modules():
            is_leaf = next(module.children(), None) is None
            if is_leaf and next(module.parameters(), None) is not None:
                handles.append(module.register_forward_hook(partial(self._save, name)))
                hook = partial(self._check, name, num_groups)
                handles.append(module.register_full_backward_hook(hook))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _save(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> None:
        self._saved[name] = (inputs[0].detach(), out.detach())

    def _check(
        self,
        name: str,
        num_groups: int,
        module: nn.Module,
        grad_inputs: Any,  # noqa: ANN401 - a tensor, or None, in a tuple
        grad_outputs: Any,  # noqa: ANN401
    ) -> None:
        """Backward through ``module`` is done: does it again in fp32, group by group."""
        inputs, outputs = self._saved.pop(name)
        parts = [inputs, outputs, grad_outputs[0]]
        if grad_inputs[0] is not None:
            parts.append(grad_inputs[0])
        chunks = [part.chunk(num_groups) for part in parts]
        with EXACT.backends(), torch.autocast(inputs.device.type, enabled=False):
            for x, out, grad_out, *grad_x in zip(*chunks, strict=True):
                self._check_chunk(name, module, x, out, grad_out, grad_x)

    @torch.enable_grad()
    def _check_chunk(
        self,
        name: str,
        module: nn.Module,
        x: Tensor,
        out: Tensor,
        grad_out: Tensor,
        grad_x: list[Tensor],
    ) -> None:
        x = x.float().requires_grad_()
        with _one_group(module):
            exact = module.forward(x)
        own = dict(module.named_parameters(recurse=False))
        grads = torch.autograd.grad(exact, [x, *own.values()], grad_out.float())
        self._compare(name, "output", out, exact)
        if grad_x:
            self._compare(name, "input gradient", grad_x[0], grads[0])
        for key, grad in zip(own, grads[1:], strict=True):
            full = f"{name}.{key}"
            self._exact[full] = self._exact[full] + grad if full in self._exact else grad

    def _compare(self, layer: str, kind: str, low: Tensor, exact: Tensor) -> None:
        self._found.setdefault((layer, kind), Comparison(kind, layer)).add(low, exact)


@contextmanager
def _one_group(module: nn.Module) -> Iterator[None]:
    """The clips of a chunk are one BN group."""
    if not isinstance(module, GroupedBatchNorm3d):
        yield
        return
    before, module.num_groups = module.num_groups, 1
    try:
        yield
    finally:
        module.num_groups = before
