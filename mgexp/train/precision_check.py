"""The check before training in reduced precision: every layer at every shape of the schedule, against fp32.

Measured in November 2026, torch 2.15, a CPU with AVX512-BF16, channels_last_3d: the bf16 weight gradient of a
convolution over more frames than its input has is wrong, now with garbage and now infinite: 5×7×7 over 2 or 4
frames, 3×1×1 over 2. At the shapes of the quickstart of 4 and 8 frames (SlowFast of depth 18, 32 channels) such
layers had a cosine with fp32 of 0.00 to 0.55, or were not finite; with 8 channels up to 0.85. All other tensors at
32 channels, and of I3D with non-local blocks, TSM (depth 50, 8 channels) and SlowFast at 16 frames, had
0.99999 or more and ratios of norms in 0.998 to 1.002; SlowFast in fp16 0.999999 or more. So the thresholds have
room on both sides. GPUs: not measured.

A process that runs the wrong kernels may die (measured: "Aborted" in a backward pass in bf16 at 2 and 4 frames, so
they seem to write out of bounds). Hence the log names each shape before it is checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from mgexp import dist
from mgexp.dist import Processes
from mgexp.errors import InputError, listed
from mgexp.plan.step_shapes import StepShape
from mgexp.record.progress import LOGGER
from mgexp.train.check_batch import draw_batch
from mgexp.train.layer_check import Agreement, LayerCheck, copy_to_check
from mgexp.train.precision import Precision
from mgexp.train.precision_cache import CheckKey, PassedChecks
from mgexp.train.step import Normalizer
from mgexp.train.task import Task

MIN_COSINE = 0.99
MIN_RATIO, MAX_RATIO = 0.9, 1.1
"""Of the norms, low to fp32. These three: between what was measured of wrong layers and of right ones."""
NEGLIGIBLE = 1e-6
"""A norm below this share of the largest of its kind is not judged while low precision finds it so small too.
Assumption; the smallest that was measured, a bias before a norm, had a share of 3e-7 and agreed."""
MAX_SHOWN = 4


@dataclass(frozen=True)
class ShapeCheck:
    """What the check of one shape found. ``min_cosine``: the worst of the judged tensors, 0 if not finite."""

    shape: StepShape
    faults: tuple[Agreement, ...]
    min_cosine: float

    def problem(self, precision: Precision) -> str:
        """The shape, the tensors, the numbers, the remedy; empty where all is well."""
        if not self.faults:
            return ""
        return (
            f"{precision.name} is wrong here for {shape_text(self.shape)}: "
            f"{listed([_fault_text(fault) for fault in self.faults], MAX_SHOWN, '; ')} (needed: finite, cosine "
            f"{MIN_COSINE:g} or more, norm {MIN_RATIO:g} to {MAX_RATIO:g} of fp32's); set TRAIN.PRECISION fp32"
        )


def check_shape(
    check: LayerCheck, shape: StepShape, task: Task, precision: Precision
) -> ShapeCheck:
    """Every layer at one shape, all its clips at once. A BN group that spans processes is one of this process."""
    groups = max(1, shape.num_bn_groups)
    # One clip alone may leave a norm a single value, which it refuses.
    clips = shape.clips if shape.num_bn_groups > 0 else max(2, shape.clips)
    drawn = StepShape(shape.frames, shape.crop, clips, groups)
    found = check.run(draw_batch(drawn, task), groups, precision)
    judged = [_cosine(one) for one in found if not _is_negligible(one)]
    return ShapeCheck(shape, tuple(filter(is_fault, found)), min(judged, default=1.0))


def check_shapes(
    model: nn.Module,
    shapes: Iterable[StepShape],
    task: Task,
    normalizer: Normalizer,
    precision: Precision,
) -> list[ShapeCheck]:
    """Every shape, on a copy: the model, its buffers and torch's draws are left as they are.

    It takes memory for one more model and about what a training step of each shape takes.
    """
    device = normalizer.device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        check = LayerCheck(copy_to_check(model), task.loss, normalizer)
        found = []
        for shape in shapes:
            LOGGER.info(
                "checking %s at %s; if the process dies here, set TRAIN.PRECISION fp32",
                *(precision.name, shape_text(shape)),
            )
            found.append(check_shape(check, shape, task, precision))
    if device.type == "cuda":
        del check
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)  # of training, which is what is recorded
    return found


def require_precision(
    model: nn.Module,
    shapes: Sequence[StepShape],
    task: Task,
    normalizer: Normalizer,
    precision: Precision,
    processes: Processes,
    passed: PassedChecks | None = None,
) -> None:
    """Raises InputError in every process where ``precision`` is wrong for a shape in one; fp32 needs no check.

    ``shapes``: of one process. A check that was passed on this machine, with these versions and this model, is
    not repeated: ``passed`` remembers. Every process must call it.
    """
    if precision.is_exact:
        return
    passed = passed or PassedChecks.of_user()
    key = CheckKey.of(model, shapes, precision, normalizer.device)
    problems: list[str] = []
    if not passed.contains(key):
        found = check_shapes(model, shapes, task, normalizer, precision)
        problems = [problem for one in found if (problem := one.problem(precision))]
        if not problems:
            passed.add(key, {str(one.shape): one.min_cosine for one in found})
    everyones = dist.merge(processes, {processes.rank: "\n".join(problems)})
    lines = [line for text in everyones.values() for line in text.splitlines()]
    if lines:
        raise InputError(list(dict.fromkeys(lines)))


def is_fault(found: Agreement) -> bool:
    """Whether a tensor is not finite, or too far from its fp32 values to be their rounding."""
    if not found.is_finite:
        return True
    if _is_negligible(found):
        return False
    return not (found.cosine >= MIN_COSINE and MIN_RATIO <= found.ratio <= MAX_RATIO)


def shape_text(shape: StepShape) -> str:
    """ "64x4x68² in 8 BN groups"."""
    groups = shape.num_bn_groups
    if groups < 0:
        return f"{shape} in a BN group that spans {-groups} processes"
    return f"{shape} in {groups} BN group{'s' if groups > 1 else ''}"


def _is_negligible(found: Agreement) -> bool:
    if not found.is_finite:
        return False
    if found.share == 0:
        return found.ratio == 1.0  # both all 0
    return found.share < NEGLIGIBLE and found.share * found.ratio < NEGLIGIBLE


def _cosine(found: Agreement) -> float:
    return 0.0 if math.isnan(found.cosine) else found.cosine


def _fault_text(found: Agreement) -> str:
    if not found.is_finite:
        return f"{found.tensor} is not finite"
    return f"{found.tensor} has cosine {found.cosine:.3f} and norm {found.ratio:.3g} times that in fp32"
