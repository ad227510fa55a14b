"""How much a run computes: FLOPs = 2 × the multiply-accumulates that fvcore counts."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import nn

from mgexp.multigrid.schedule import Schedule
from mgexp.quiet import no_jit_warning

FLOPS_PER_MAC = 2
TRAINING_PER_FORWARD = 3  # the backward pass costs twice the forward pass (assumption, as usual)


def macs_by_shape(
    model: nn.Module, shapes: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], int]:
    """Multiply-accumulates of a forward pass of one clip, by (frames, crop). Runs each shape once, on the CPU."""
    clone = copy.deepcopy(model).eval().cpu()
    return {shape: _macs(clone, *shape) for shape in sorted(set(shapes))}


def train_flops(schedule: Schedule, macs: dict[tuple[int, int], int]) -> int:
    """FLOPs of all training steps."""
    total = 0
    for phase in schedule.phases:
        for shape, num_steps in phase.turns.steps_by_shape(phase.num_steps):
            total += num_steps * shape.ratio * macs[shape.frames, shape.crop]
    return total * schedule.recipe.clips * FLOPS_PER_MAC * TRAINING_PER_FORWARD


def schedule_shapes(schedule: Schedule) -> set[tuple[int, int]]:
    """Every (frames, crop) that a schedule trains."""
    return {(s.frames, s.crop) for phase in schedule.phases for s in phase.cycle.shapes}


def _macs(model: nn.Module, frames: int, crop: int) -> int:
    with no_jit_warning():
        from fvcore.nn import FlopCountAnalysis

    clip = torch.zeros(1, 3, frames, crop, crop)
    analysis = FlopCountAnalysis(model, clip)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    return int(analysis.total())
