"""The network compiled: one static graph for each mini-batch of the schedule, all before the first step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import nn
from tqdm import tqdm

from mgexp.data.clips import Batch
from mgexp.models.dropout import Draws
from mgexp.plan.step_shapes import StepShape
from mgexp.train.step import TrainStep

Mode = Literal["default", "cuda_graphs"]
INDUCTOR_MODES = {"default": "default", "cuda_graphs": "reduce-overhead"}


@contextmanager
def compiled(model: nn.Module, mode: Mode, num_graphs: int) -> Iterator[None]:
    """Inside, ``model`` is compiled as a whole, in place; copies of it, which are evaluated, are not.

    torch gives up on a network that it has compiled too often, and then runs it slowly without a word: it may
    do so ``num_graphs`` times here, and one time more, or a part that it cannot compile, is an error.
    """
    limits = {
        "recompile_limit": num_graphs,
        "accumulated_recompile_limit": 8 * num_graphs,
        "fail_on_recompile_limit_hit": True,
    }
    with torch._dynamo.config.patch(limits):
        model.compile(fullgraph=True, dynamic=False, mode=INDUCTOR_MODES[mode])
        yield


def warm_up(
    step: TrainStep,
    shapes: Sequence[StepShape],
    batch_of: Callable[[StepShape], Batch],
    progress: bool,
) -> None:
    """Forward and backward of a batch of each shape; weights, statistics and draws are then what they were."""
    model = step.model
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    # None: a bar on a terminal alone.
    bar = tqdm(shapes, desc="compiling", unit="shape", disable=None if progress else True)
    with torch.random.fork_rng():
        for shape in bar:
            step.backward(batch_of(shape), shape.num_bn_groups, Draws(seed=0, step=0))
    step.optimizer.zero_grad(set_to_none=True)
    for name, buffer in model.named_buffers():
        buffer.copy_(before[name])


def blank_batch(shape: StepShape, labels: torch.Tensor, device: torch.device) -> Batch:
    """Black clips (B, 3, T, S, S) in the memory format of a loader's, half of them flipped."""
    size = (shape.clips, shape.frames, shape.crop, shape.crop, 3)
    clips = torch.zeros(size, dtype=torch.uint8, device=device).permute(0, 4, 1, 2, 3)
    flipped = torch.arange(shape.clips, device=device) % 2 == 0
    return Batch(clips, labels, (), flipped=flipped)
