"""The size of a model, and what a clip costs at each shape of a schedule: FLOPs, and memory for backward."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from mgexp.models.layers import no_jit_warning
from mgexp.multigrid.schedule import Schedule

FLOPS_PER_MAC = 2
TRAINING_PER_FORWARD = 3  # the backward pass costs twice the forward pass (assumption, as usual)


def macs_by_shape(
    model: nn.Module, shapes: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], int]:
    """Count multiply-accumulates of one clip, forward, by (frames, crop). Runs each shape once, on the CPU."""
    with no_jit_warning():
        from fvcore.nn import FlopCountAnalysis

    # On a copy in evaluation: a training pass would move the statistics of batch normalisation.
    clone = copy.deepcopy(model).eval().cpu()
    macs = {}
    for frames, crop in sorted(set(shapes)):
        analysis = FlopCountAnalysis(clone, torch.zeros(1, 3, frames, crop, crop))
        # fvcore would warn of each operation that it does not count, such as additions and pools. They are no
        # multiply-accumulates, and take little of the time.
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        macs[frames, crop] = int(analysis.total())
    return macs


def train_flops(schedule: Schedule, macs: dict[tuple[int, int], int]) -> int:
    """Count the FLOPs of all training steps."""
    total = 0
    for phase in schedule.phases:
        for shape, num_steps in phase.turns.steps_by_shape(phase.num_steps):
            total += num_steps * shape.ratio * macs[shape.frames, shape.crop]
    return total * schedule.recipe.clips * FLOPS_PER_MAC * TRAINING_PER_FORWARD


def schedule_shapes(schedule: Schedule) -> set[tuple[int, int]]:
    """Return every (frames, crop) that a schedule trains."""
    return {(s.frames, s.crop) for phase in schedule.phases for s in phase.cycle.shapes}


def activation_bytes(model: nn.Module, frames: int, crop: int) -> int:
    """Estimate the bytes that a training forward pass in fp32 keeps of one clip (3, frames, crop, crop).

    These are the tensors that autograd saves on a copy of ``model`` on the meta device, each storage once, without
    the weights. Nothing is computed. The pass takes two clips, and half of its bytes are returned, because batch
    norm does not train on a single value. A step also needs weights, gradients, momenta and the workspace of
    convolutions.
    """
    clone = copy.deepcopy(model).to("meta").train()
    weights = [tensor.untyped_storage() for tensor in (*clone.parameters(), *clone.buffers())]
    kept = {storage._cdata: storage for storage in weights}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage  # held, so that no other storage gets its address
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _output = clone(torch.zeros(2, 3, frames, crop, crop, device="meta"))
    saved = kept.keys() - {storage._cdata for storage in weights}
    return sum(kept[key].nbytes() for key in saved) // 2


def num_params(model: nn.Module) -> int:
    """Count the parameters of a model."""
    return sum(parameter.numel() for parameter in model.parameters())
