"""What to do where a mini-batch does not fit into memory: the message names the shape, and what would fit."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator

import torch

from mgexp.data.clips import Batch
from mgexp.models.dropout import Draws
from mgexp.plan.step_shapes import StepShape
from mgexp.train.micro_batches import least_clips, split
from mgexp.train.step import TrainStep

SIGNS = (
    "can't allocate memory",  # of torch on a CPU
    "could not create a memory object",  # of oneDNN, as the next
    "could not create a primitive",
    "out of memory",  # of CUDA and its libraries
    "STATUS_ALLOC_FAILED",  # of cuDNN and cuBLAS
    "std::bad_alloc",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it says that memory ran out, of a GPU or of the machine."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)


def shape_message(
    reason: str,
    shape: StepShape,
    shapes: Iterable[StepShape],
    step: TrainStep,
    batch: Batch,
    may_try: bool,
) -> str:
    """One sentence. ``shape`` did not fit, ``shapes`` are all of the schedule, ``batch`` is what was trained.

    ``may_try``: fewer clips of ``batch`` are trained here until some fit; else half of them are a guess. They
    cannot be tried where other processes take part in a step, nor on a CPU, where libraries crash once memory is
    short. The weights stay as they are; gradients do not.
    """
    at_once = max(part.clips for part in split(shape.clips, shape.num_bn_groups, step.max_clips))
    size = least_clips(shape)
    choices = list(_halves(at_once // size)) if shape.num_bn_groups > 0 else []
    needed = max(least_clips(one) for one in shapes)  # of clips, for every shape
    fits = next((n for n in choices if _fits(step, batch, n, size)), 0) if may_try else 0
    clips = size * fits
    remedies = "TRAIN.ACTIVATION_CHECKPOINTING True, or a smaller TRAIN.BATCH_SIZE"
    if clips >= needed:
        remedies = (
            f"TRAIN.MAX_CLIPS_PER_GPU {clips} (so many fit, in whole BN groups), or {remedies}"
        )
    elif not may_try and choices and size * choices[0] >= needed:
        guess = f"TRAIN.MAX_CLIPS_PER_GPU {size * choices[0]} (half as many, in whole BN groups)"
        remedies = f"{guess}, or {remedies}"
    return (
        f"out of memory at a mini-batch of {shape}, of which {at_once} clips went through the network at once: "
        f"set {remedies}, with --override where the run has a checkpoint ({reason})"
    )


def first_line(error: BaseException) -> str:
    """What it says, without where in C++ it was raised."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _halves(num: int) -> Iterator[int]:
    """num/2, num/4, …, 1."""
    while num > 1:
        num //= 2
        yield num


def _fits(step: TrainStep, batch: Batch, num_groups: int, group_clips: int) -> bool:
    """Whether so many groups of the batch go forward and back."""
    rows = slice(0, num_groups * group_clips)
    try:
        gc.collect()
        torch.cuda.empty_cache()
        step.backward(batch.map(lambda tensor: tensor[rows]), num_groups, Draws(seed=0, step=0))
    except (RuntimeError, MemoryError):
        return False
    finally:
        step.optimizer.zero_grad(set_to_none=True)
    return True
