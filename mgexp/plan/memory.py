"""Estimate the memory of a training step at every shape of a schedule, without a GPU and without data."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from mgexp.config.keys import Config
from mgexp.errors import InputError
from mgexp.models.build import build_model
from mgexp.models.cost import activation_bytes
from mgexp.multigrid.batchnorm import grouped_layers
from mgexp.multigrid.schedule import Schedule, StepShape, step_counts
from mgexp.optim.build import build_optimizer
from mgexp.text import aligned
from mgexp.train.mixing import is_mixed
from mgexp.train.step import count_pieces, split


def build_memory(cfg: Config, schedule: Schedule, num_processes: int) -> dict[str, Any]:
    """Estimate the bytes that a process holds between steps, and those that a step of each shape keeps, for JSON.

    ``activation_bytes`` is what the ``clips_at_once`` that go through the network together keep for the backward
    pass in fp32. Raises InputError if the optimizer cannot be counted.
    """
    model = build_model(cfg)
    most: dict[tuple[int, int, int], int] = {}
    for step in step_counts(schedule):
        # The BN groups of a shape differ from phase to phase, and so may its parts.
        size = (step.frames, step.crop, step.clips)
        most[size] = max(most.get(size, 0), build_clips_at_once(cfg, model, step))
    shapes = [
        {
            "frames": frames,
            "crop": crop,
            "clips": clips,
            "clips_at_once": at_once,
            "activation_bytes": at_once * activation_bytes(model, frames, crop),
        }
        for (frames, crop, clips), at_once in most.items()
    ]
    return {
        "held_bytes": build_held_bytes(cfg, model, num_processes),
        "shapes": sorted(shapes, key=lambda shape: (-shape["clips"], shape["frames"])),
    }


def build_clips_at_once(cfg: Config, model: nn.Module, step: StepShape) -> int:
    """Return the most clips of a mini-batch that go through ``model`` together."""
    has_groups = bool(grouped_layers(model))
    pieces = count_pieces(step.clips, step.num_bn_groups, has_groups, is_mixed(cfg.AUG))
    return max(part.clips for part in split(step.clips, pieces, cfg.TRAIN.MAX_CLIPS_PER_GPU))


def build_held_bytes(cfg: Config, model: nn.Module, num_processes: int = 1) -> int:
    """Count the bytes that a process holds. Raises InputError if the optimizer cannot step without memory."""
    clone = copy.deepcopy(model).to("meta")
    weights = sum(tensor.nbytes for tensor in (*clone.parameters(), *clone.buffers()))
    optimizer, gradients = build_optimizer(cfg, clone), 0
    for parameter in (tensor for tensor in clone.parameters() if tensor.requires_grad):
        parameter.grad = torch.zeros_like(parameter)
        gradients += parameter.nbytes
    try:
        optimizer.step()
    # A custom optimizer may raise anything.
    except Exception as error:
        method, reason = cfg.SOLVER.OPTIMIZING_METHOD, f"{type(error).__name__}: {error}"
        problem = f"SOLVER.OPTIMIZING_METHOD = {method}: its memory cannot be counted: {reason}"
        raise InputError([problem]) from error
    values = (value for state in optimizer.state.values() for value in state.values())
    states = sum(value.nbytes for value in values if isinstance(value, torch.Tensor))
    # Several processes exchange gradients in buffers of their own (DistributedDataParallel).
    gradients *= 1 if num_processes == 1 else 2
    return weights * (2 if cfg.TRAIN.EMA_DECAY else 1) + gradients + states


def memory_table(memory: Mapping[str, Any], num_processes: int) -> str:
    """Write the result of ``build_memory`` as a table for people."""
    shapes: Sequence[Mapping[str, int]] = memory["shapes"]
    where = f"of one of {num_processes} processes" if num_processes > 1 else "of the process"
    held = memory["held_bytes"]
    rows = [("shape", "clips", "at once", "GiB of a step")]
    for shape in shapes:
        total = f"{(held + shape['activation_bytes']) / 2**30:.2f}"
        counts = f"{shape['clips']}", f"{shape['clips_at_once']}"
        rows.append((f"{shape['frames']}x{shape['crop']}²", *counts, total))
    return "\n".join(
        [
            f"memory {where} in fp32, of which weights, gradients and optimizer hold {held / 2**30:.2f} GiB",
            aligned(rows),
            "An estimate of what autograd keeps. The workspace of kernels comes on top.",
            "at once: TRAIN.MAX_CLIPS_PER_GPU cuts a mini-batch into parts.",
        ]
    )
