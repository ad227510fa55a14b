"""Run one training step: cut a mini-batch into parts, normalise, forward, backward, update."""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from operator import itemgetter

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mgexp.config.keys import Config
from mgexp.data.batches import Batch
from mgexp.errors import InputError, listed
from mgexp.models.layers import Draws, set_draws
from mgexp.multigrid.batchnorm import grouped_layers, one_sample, set_num_groups, share_statistics
from mgexp.multigrid.schedule import StepShape
from mgexp.train.checkpoint import State
from mgexp.train.mixing import Mixing, is_mixed
from mgexp.train.precision import Precision
from mgexp.train.task import Loss, Task

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of mallopt. Source: malloc.h of the GNU C library."""


def keep_memory(device: torch.device) -> None:
    """Keep freed memory in this process and its forks if ``device`` is a CPU. On a GPU torch does so itself."""
    # By default glibc returns large blocks to the system at once, and a moment later gets them
    # again, page by page and filled with zeros. Measured on 2 cores: a step of SlowFast R50 at
    # 8x16x158² takes 2.7 to 4.3 s instead of 3.7 to 5.4 s, and a step of the quickstart's baseline
    # takes 127 and 139 ms instead of 165 and 209 ms. The losses and the peak of memory are the
    # same.
    if device.type != "cpu":
        return
    # Other C libraries, such as musl, have no such setting.
    with suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_TRIM_THRESHOLD, -1)
        mallopt(M_MMAP_MAX, 0)


def check_clips(batch: Batch) -> None:
    """Raise InputError for an empty batch: the loader found no video that decodes for one of its clips."""
    if not len(batch.clips):
        reasons = [reason for _, reason in batch.unusable]
        raise InputError([f"many videos in a row cannot be decoded: {listed(reasons)}"])


@dataclass(frozen=True)
class MicroBatch:
    """Clips [first, first + clips) of a process's mini-batch, in ``num_pieces`` as `count_pieces` counts them."""

    first: int
    clips: int
    num_pieces: int


def split(clips: int, num_pieces: int, max_clips: int) -> tuple[MicroBatch, ...]:
    """Cut the mini-batch of one process into as few parts of at most ``max_clips`` as possible (0: one part).

    The parts differ by one piece at most. Raises ValueError if a single piece is larger than
    ``max_clips``, or if a BN group spans processes (``num_pieces`` is then negative).
    """
    # Batch norm takes its statistics over whole groups, so a cut inside a group would change the
    # result.
    if not max_clips or clips <= max_clips:
        return (MicroBatch(0, clips, num_pieces),)
    if num_pieces < 0:
        raise ValueError(f"{clips} clips cannot be cut: one BN group spans {-num_pieces} processes")
    size = clips // num_pieces
    if size > max_clips:
        raise ValueError(f"{size} clips that belong together cannot be cut")
    num_parts = math.ceil(num_pieces / (max_clips // size))
    edges = [part * num_pieces // num_parts for part in range(num_parts + 1)]
    return tuple(
        MicroBatch(start * size, (end - start) * size, end - start)
        for start, end in pairwise(edges)
    )


def count_pieces(clips: int, num_bn_groups: int, has_batchnorm: bool, in_pairs: bool) -> int:
    """Count the pieces of a mini-batch that cannot be cut: BN groups, or else clips or the pairs of mixup."""
    return num_bn_groups if has_batchnorm else clips // (2 if in_pairs else 1)


def split_problems(
    shapes: Iterable[StepShape],
    max_clips: int,
    has_batchnorm: bool = True,
    in_pairs: bool = False,
) -> Iterator[str]:
    """Yield a problem for each shape whose mini-batch cannot be cut into parts of ``max_clips``.

    ``in_pairs``: mixup or CutMix blend neighbours, so all parts have an even number of clips.
    """
    for shape in shapes:
        pieces = count_pieces(shape.clips, shape.num_bn_groups, has_batchnorm, in_pairs)
        try:
            parts = split(shape.clips, pieces, max_clips)
        except ValueError as error:
            yield (
                f"TRAIN.MAX_CLIPS_PER_GPU = {max_clips} is too few for {shape}: {error}; raise it, or set "
                f"MULTIGRID.BN_BASE_SIZE to {max_clips} or less, but not to 0"
            )
            continue
        if in_pairs and any(clips % 2 for clips in (shape.clips, *(part.clips for part in parts))):
            yield (
                f"AUG.MIXUP_ALPHA and CUTMIX_ALPHA take pairs of clips, and {shape} has {shape.clips} clips in a "
                f"process, in parts of {parts[0].clips}: change TRAIN.BATCH_SIZE, MULTIGRID.BN_BASE_SIZE, "
                "TRAIN.MAX_CLIPS_PER_GPU or the number of processes"
            )


@dataclass(frozen=True)
class Normalizer:
    """Normalisation of uint8 RGB clips (B, 3, T, S, S) to (x/255 - ``mean``) / ``std``.

    The result has ``dtype`` and is on ``device``.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    device: torch.device
    dtype: torch.dtype = torch.float32

    def __call__(self, clips: Tensor, flipped: Tensor | None = None) -> Tensor:
        """Mirror the clips that ``flipped`` (B,) marks, then normalise. The result has channels_last_3d memory."""
        # The loader sends uint8, which has a quarter of the bytes of float32, so the rest is done
        # here, on the device.
        shown = clips.to(self.device, non_blocking=True)
        if flipped is not None:
            mask = flipped.to(self.device, non_blocking=True).view(-1, 1, 1, 1, 1)
            # All clips are mirrored and some are taken: an index of the marked ones would make the CPU wait for
            # a GPU.
            shown = torch.where(mask, shown.flip(-1), shown)
        # Rows of S·3 values in place of 3 at a time take a CPU a sixth of the time. ``to`` makes a copy of another
        # type, so the in-place steps do not change the caller's clips.
        last = shown.permute(0, 2, 3, 4, 1)
        mean, std = (constant.repeat(shown.shape[4]) for constant in self._constants)
        rows = last.flatten(3).to(self.dtype).sub_(mean).div_(std)
        return rows.view(last.shape).permute(0, 4, 1, 2, 3)

    @cached_property
    def _constants(self) -> tuple[Tensor, Tensor]:
        # A copy to a GPU makes the CPU wait, so we make these tensors once and not in each step.
        # They contain the factor 255, which saves one pass over the clips.
        mean, std = (
            torch.tensor(values, device=self.device, dtype=self.dtype) * 255
            for values in (self.mean, self.std)
        )
        return mean, std


@dataclass(frozen=True)
class TrainStep:
    """Forward pass, backward pass and update.

    At most ``max_clips`` clips go through ``model`` at once (0: all of them). If ``max_grad_norm``
    is not 0 and the L2 norm of all gradients together is larger, the gradients are scaled down to
    this norm. ``scaler`` belongs to ``precision``. In fp16 it waits for the device, and skips an
    update whose gradients overflow.

    A model that ``takes_labels`` returns the loss itself.

    ``model`` may be wrapped for several processes. All processes then have the gradients and the
    batch-norm statistics of the global mini-batch.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Loss
    normalizer: Normalizer
    max_clips: int = 0
    precision: Precision = field(default_factory=Precision)
    scaler: torch.amp.GradScaler = field(
        default_factory=partial(torch.amp.GradScaler, enabled=False)
    )
    max_grad_norm: float = 0.0
    mixing: Mixing | None = None
    takes_labels: bool = False

    def __call__(self, batch: Batch, num_bn_groups: int, draws: Draws) -> Tensor:
        """Train on ``batch``; return the mean loss of this process's clips, on the device, finite or not.

        ``draws`` belongs to the first clip of ``batch``. Raises ValueError if a BN group exceeds ``max_clips``.
        """
        loss = self.backward(batch, num_bn_groups, draws)
        # DDP averaged the gradients during the backward pass. So all processes have one norm here, and clip
        # alike.
        if self.max_grad_norm:
            # In fp16 the gradients are still multiplied by the loss scale, so we undo that before
            # we compare their norm.
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def backward(self, batch: Batch, num_bn_groups: int, draws: Draws) -> Tensor:
        """Compute the gradients of a step without its update; return its loss."""
        parts = self.parts(len(batch.clips), num_bn_groups)
        self.model.train()
        # None and not zeros: the first part writes its gradients, and need not read zeros to add to them.
        self.optimizer.zero_grad(set_to_none=True)
        with one_sample(self.model) if len(parts) > 1 else nullcontext():
            losses = [self._backward(batch, part, draws, part is parts[-1]) for part in parts]
        # DDP averages gradients, but not the statistics of batch norm. If a group spans processes,
        # its layers already have the statistics of all of them.
        if isinstance(self.model, DistributedDataParallel) and num_bn_groups > 0:
            share_statistics(self.model)
        return torch.stack(losses).sum()

    def parts(self, clips: int, num_bn_groups: int) -> tuple[MicroBatch, ...]:
        """Cut a mini-batch into the parts that go through the network one after the other."""
        pieces = count_pieces(clips, num_bn_groups, self.has_batchnorm, self.mixing is not None)
        return split(clips, pieces, self.max_clips)

    def part_shapes(self, shapes: Iterable[StepShape]) -> list[StepShape]:
        """List the shapes that go through the network: those of the parts where a mini-batch is cut."""
        shapes_of_parts: dict[StepShape, None] = {}
        for shape in shapes:
            parts = self.parts(shape.clips, shape.num_bn_groups)
            cut = [
                replace(shape, clips=part.clips, num_bn_groups=part.num_pieces) for part in parts
            ]
            shapes_of_parts |= dict.fromkeys(cut if len(cut) > 1 else [shape])
        return [*shapes_of_parts]

    @cached_property
    def has_batchnorm(self) -> bool:
        """Return whether the network has layers whose statistics are over groups of clips."""
        return bool(grouped_layers(self.model))

    # This is a separate method, so that the tensors of one part are freed before the next part
    # begins.
    def _backward(self, batch: Batch, part: MicroBatch, draws: Draws, is_last: bool) -> Tensor:
        """Add the gradients of one part; return its share of the batch's mean loss."""
        set_num_groups(self.model, part.num_pieces)
        set_draws(self.model, draws.after(part.first), part.clips)
        own = batch.map(itemgetter(slice(part.first, part.first + part.clips)))
        reduction: AbstractContextManager[None] = nullcontext()
        if isinstance(self.model, DistributedDataParallel) and not is_last:
            # Gradients stay in this process until the last part, which sends the sum of all parts
            # at once. The forward pass must be inside no_sync() too, since DDP prepares the sending
            # there.
            reduction = self.model.no_sync()
        with reduction:
            clips, loss_of = self.normalizer(own.clips, own.flipped), self.loss
            if self.mixing:
                clips, loss_of = self.mixing.apply(self.loss, draws, clips, own.labels)
            with self.precision.autocast(clips.device):
                labels = (own.labels,) if self.takes_labels else ()
                loss = loss_of(self.model(clips, *labels), own.labels)
            # The gradients of the parts add up, so each part counts by its share of the clips.
            share = loss * (part.clips / len(batch.clips))
            self.scaler.scale(share).backward()  # type: ignore[no-untyped-call]
        return share.detach()


def build_step(
    cfg: Config,
    model: nn.Module,
    state: State,
    task: Task,
    normalizer: Normalizer,
    precision: Precision,
    class_weights: Mapping[int, float] | None = None,
) -> TrainStep:
    """Build the step that trains ``model``: the model of ``state``, or its wrapper for several processes.

    ``class_weights``: factors of the loss of a clip by its class; evaluations do not have them.
    """
    smoothing, aug = cfg.MODEL.LABEL_SMOOTHING, cfg.AUG
    loss = partial(F.cross_entropy, label_smoothing=smoothing) if smoothing else task.loss
    if class_weights is not None:
        # A class without training videos keeps the factor 0, which no clip meets.
        factors = torch.zeros(task.num_classes, device=normalizer.device)
        factors[[*class_weights]] = torch.tensor([*class_weights.values()]).to(factors)
        loss = partial(weighted_cross_entropy, factors=factors, smoothing=smoothing)
    return TrainStep(
        model,
        state.optimizer,
        loss,
        normalizer,
        max_clips=cfg.TRAIN.MAX_CLIPS_PER_GPU,
        precision=precision,
        scaler=state.scaler,
        max_grad_norm=cfg.SOLVER.CLIP_GRAD_L2NORM,
        mixing=Mixing(aug.MIXUP_ALPHA, aug.CUTMIX_ALPHA) if is_mixed(aug) else None,
        takes_labels=task.takes_labels,
    )


def weighted_cross_entropy(
    logits: Tensor, labels: Tensor, factors: Tensor, smoothing: float = 0.0
) -> Tensor:
    """Return the mean over clips of their cross-entropy times the factor of their class.

    torch's own weights divide by the sum of the factors in a mini-batch. So its mean over parts or processes would
    not be that of the whole mini-batch.
    """
    each = F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
    return (factors[labels] * each).mean()


def keeping_random_state(device: torch.device) -> AbstractContextManager[None]:
    """Put torch's random state back after the block, on the CPU and on ``device``."""
    # By default torch would look at every GPU of the machine.
    return torch.random.fork_rng([device] if device.type == "cuda" else [])


def seed_step(seed: int, step: int) -> None:
    """Seed torch's generator for ``step``, the same in every process."""
    # mgexp itself does not draw from torch's generator during training, even in dropout. A user's
    # network may. With this seed it draws the same numbers in a resumed run. We hash, because a
    # plain sum would give step 1 of seed 0 the draws of step 0 of seed 1.
    # Seven bytes are a number below 2^63, which every version of torch takes as it is.
    digest = hashlib.blake2b(f"{seed} {step}".encode(), digest_size=7).digest()
    torch.manual_seed(int.from_bytes(digest, "little"))
