"""The size of a model, and the FLOPs and the memory of a clip at each shape of a schedule."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from mgexp.errors import InputError, first_line
from mgexp.models.forms import drop_forms
from mgexp.multigrid.schedule import Schedule
from mgexp.run.log import LOGGER

FLOPS_PER_MAC = 2
TRAINING_PER_FORWARD = 3
"""A training step costs this many forward passes. The usual assumption: a backward pass costs two
of them."""


def macs_by_shape(
    model: nn.Module, shapes: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], int]:
    """Count the multiply-accumulates of a clip's forward pass, by (frames, crop). Each shape runs once."""
    from fvcore.nn import FlopCountAnalysis

    # We use a copy in evaluation mode, because a training pass would move the statistics of batch
    # norm.
    clone = drop_forms(copy.deepcopy(model)).eval().cpu()
    macs = {}
    for frames, crop in sorted(set(shapes)):
        analysis = FlopCountAnalysis(clone, torch.zeros(1, 3, frames, crop, crop))
        # fvcore would warn of each operation that it does not count, such as additions and pools.
        # These are no multiply-accumulates, and they take little of the time.
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        analysis.set_op_handle("aten::scaled_dot_product_attention", _attention_macs)
        macs[frames, crop] = int(analysis.total())
    return macs


def _attention_macs(inputs: list[Any], _outputs: list[Any]) -> int:
    """Count query × key and weights × value, which fvcore does not know. The arguments are nodes of a trace."""
    query, key, value = (node.type().sizes() for node in inputs[:3])
    return int(math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1]))


def products_by_shape(
    model: nn.Module, shapes: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], int]:
    """Count the multiply-accumulates of a clip's convolutions and matrix products alone, by (frames, crop).

    ``model`` may be on the meta device, where nothing is computed. `macs_by_shape` also counts normalisation and
    pools, which are about 0.5 % of our networks (X3D 3 %). Raises ValueError for a shape that the model cannot
    take, whatever the model raises there.
    """
    device = next(model.parameters()).device
    macs = {}
    for frames, crop in sorted(set(shapes)):
        try:
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                model(torch.zeros(1, 3, frames, crop, crop, device=device))
        except ValueError:
            raise
        except Exception as error:
            text = str(error) or type(error).__name__
            raise ValueError(f"a clip of {frames} x {crop}² cannot be counted: {text}") from error
        macs[frames, crop] = counter.get_total_flops() // FLOPS_PER_MAC
    return macs


def count_macs(model: nn.Module, shapes: Collection[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Count by `macs_by_shape`, or by `products_by_shape` if fvcore cannot trace the network.

    A run and its report both count in this way, so their FLOPs agree. Raises InputError if neither can count.
    """
    try:
        return macs_by_shape(model, shapes)
    # fvcore traces the network, which may contain code that cannot be traced, and then raises anything.
    except Exception as error:
        LOGGER.warning("fvcore cannot count this network, so torch does: %s", first_line(error))
    try:
        return products_by_shape(drop_forms(copy.deepcopy(model)).eval(), shapes)
    except ValueError as problem:
        raise InputError([f"the FLOPs of a run cannot be counted: {problem}"]) from problem


def train_flops(
    schedule: Schedule, macs: Mapping[tuple[int, int], int], end_step: int | None = None
) -> int:
    """Count the FLOPs of the training steps before ``end_step``, by default of all steps."""
    end = schedule.total_steps if end_step is None else end_step
    forward = schedule.cost_before(end, lambda frames, crop: macs[frames, crop])
    return forward * FLOPS_PER_MAC * TRAINING_PER_FORWARD


def activation_bytes(model: nn.Module, frames: int, crop: int) -> int:
    """Estimate the bytes that one clip (3, frames, crop, crop) keeps for backward, in fp32.

    A copy of ``model`` runs with tensors of a CPU that hold no values, so nothing is computed. The estimate counts
    the tensors that autograd saves, each storage once, without the weights. A step also needs weights,
    gradients, momenta and the workspace of convolutions. Raises InputError if the model does not run there.
    """
    # Batch norm does not train on a single value per channel. So two clips pass, and half of the
    # bytes count.
    clone = copy.deepcopy(model).to("meta").train()
    fake_cpu = FakeTensorMode(allow_non_fake_inputs=True)
    # Unlike the meta device, it takes the kernel of attention of a real CPU, which keeps no products of all pairs.
    with fake_cpu:
        clone = clone.to_empty(device="cpu")
    weights = [tensor.untyped_storage() for tensor in (*clone.parameters(), *clone.buffers())]
    kept = {storage._cdata: storage for storage in weights}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        # The dict keeps the storage alive, so that no other storage gets its address.
        kept[storage._cdata] = storage
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    try:
        with hooks, fake_cpu:
            _output = clone(torch.zeros(2, 3, frames, crop, crop))
    # A custom model may raise anything.
    except Exception as error:
        problem = f"the memory of a clip of {frames} x {crop}² cannot be estimated"
        raise InputError([f"{problem}: {first_line(error)}"]) from error
    saved = kept.keys() - {storage._cdata for storage in weights}
    return sum(kept[key].nbytes() for key in saved) // 2


def num_params(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
