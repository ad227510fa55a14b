"""The network compiled: one static graph for each mini-batch of the schedule, all before the first step."""

from __future__ import annotations

import ctypes
import hashlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from mgexp.data.clips import Batch
from mgexp.models.layers import Draws, set_draws
from mgexp.multigrid.batchnorm import one_sample, set_num_groups, share_statistics
from mgexp.multigrid.steps import StepShape
from mgexp.train.precision import Precision
from mgexp.train.task import Loss

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of mallopt. Source: malloc.h of the GNU C library."""


def keep_memory() -> bool:
    """Freed memory stays with this process, and with those forked from it; whether the C library can do that.

    glibc gives large blocks back to the system at once, and gets them anew, page by page and zeroed, a moment
    later. Measured on 2 cores: a step of SlowFast R50 at 8x16x158² of 2.7 to 4.3 instead of 3.7 to 5.4 s, one of
    the quickstart's baseline of 127 and 139 instead of 165 and 209 ms; the losses and the peak of memory are the
    same. Only glibc has it: elsewhere nothing is done.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, -1)) and bool(mallopt(M_MMAP_MAX, 0))


@dataclass(frozen=True)
class MicroBatch:
    """Clips [first, first + clips) of a process's mini-batch, in ``num_bn_groups`` whole groups."""

    first: int
    clips: int
    num_bn_groups: int


def split(clips: int, num_bn_groups: int, max_clips: int) -> tuple[MicroBatch, ...]:
    """A mini-batch of one process in as few parts of at most ``max_clips`` as possible; 0: in one.

    Parts differ by one group at most. Raises ValueError where a group alone is larger, or spans processes.
    """
    if not max_clips or clips <= max_clips:
        return (MicroBatch(0, clips, num_bn_groups),)
    if num_bn_groups < 0:
        raise ValueError(
            f"{clips} clips cannot be cut: one BN group spans {-num_bn_groups} processes"
        )
    size = clips // num_bn_groups
    if size > max_clips:
        raise ValueError(f"a BN group of {size} clips cannot be cut")
    num_parts = math.ceil(num_bn_groups / (max_clips // size))
    edges = [part * num_bn_groups // num_parts for part in range(num_parts + 1)]
    return tuple(
        MicroBatch(start * size, (end - start) * size, end - start)
        for start, end in pairwise(edges)
    )


def split_problems(shapes: Iterable[StepShape], max_clips: int) -> Iterator[str]:
    """Shapes whose mini-batches cannot be cut into parts of ``max_clips``."""
    for shape in shapes:
        try:
            split(shape.clips, shape.num_bn_groups, max_clips)
        except ValueError as error:
            yield (
                f"TRAIN.MAX_CLIPS_PER_GPU = {max_clips} is too few for {shape}: {error}; raise it to "
                f"{least_clips(shape)} or more, or set MULTIGRID.BN_BASE_SIZE lower"
            )


def least_clips(shape: StepShape) -> int:
    """The fewest clips that a part of a mini-batch of ``shape`` can have."""
    return shape.clips // max(1, shape.num_bn_groups)


@dataclass(frozen=True)
class Normalizer:
    """uint8 RGB clips (B, 3, T, S, S) to ``dtype`` on ``device``: x/255, minus ``mean``, by ``std``."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    device: torch.device
    dtype: torch.dtype = torch.float32

    def __call__(self, clips: Tensor, flipped: Tensor | None = None) -> Tensor:
        """Keeps the memory format; those of ``flipped`` (B,) left for right."""
        shown = clips.to(self.device, non_blocking=True)
        if flipped is not None:
            mask = flipped.to(self.device, non_blocking=True).view(-1, 1, 1, 1, 1)
            shown = torch.where(mask, shown.flip(-1), shown)
        mean, std = self._constants
        return shown.to(self.dtype).sub_(mean).div_(std)

    @cached_property
    def _constants(self) -> tuple[Tensor, Tensor]:
        """Made once: a GPU would be waited for each time."""
        mean, std = (
            torch.tensor(values, device=self.device, dtype=self.dtype).view(1, -1, 1, 1, 1) * 255
            for values in (self.mean, self.std)
        )
        return mean, std


@dataclass(frozen=True)
class TrainStep:
    """Forward, backward and update. ``max_clips`` that go through ``model`` at once, 0: all.

    Where ``max_grad_norm`` is not 0 and the L2 norm of all gradients together is larger, they are scaled to it.

    ``model`` may be wrapped for several processes, which then have the same gradients and statistics of batch
    normalisation: those of the global mini-batch. ``scaler`` is that of ``precision``; where it is on, for fp16,
    the update waits for the device, to leave out a step whose gradients overflow.
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

    def __call__(self, batch: Batch, num_bn_groups: int, draws: Draws) -> Tensor:
        """The mean loss of this process's clips, on the device, finite or not.

        ``draws`` begins with the first of them. Raises ValueError where ``max_clips`` are too few.
        """
        loss = self.backward(batch, num_bn_groups, draws)
        if self.max_grad_norm:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def backward(self, batch: Batch, num_bn_groups: int, draws: Draws) -> Tensor:
        """The gradients of a step, without the update; gives its loss."""
        parts = split(len(batch.clips), num_bn_groups, self.max_clips)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        with one_sample(self.model) if len(parts) > 1 else nullcontext():
            losses = [self._backward(batch, part, draws, part is parts[-1]) for part in parts]
        if self._is_shared and num_bn_groups > 0:  # else they are those of all processes already
            share_statistics(self.model)
        return torch.stack(losses).sum()

    def _backward(self, batch: Batch, part: MicroBatch, draws: Draws, is_last: bool) -> Tensor:
        """Adds the part's gradients of the mean loss of the batch; gives its share of that loss."""
        set_num_groups(self.model, part.num_bn_groups)
        set_draws(self.model, draws.after(part.first))
        rows = slice(part.first, part.first + part.clips)
        own = batch.map(lambda tensor: tensor[rows])
        with nullcontext() if is_last else self._without_reduction():
            clips = self.normalizer(own.clips, own.flipped)
            with self.precision.autocast(clips.device):
                loss = self.loss(self.model(clips), own.labels)
            share = loss * (part.clips / len(batch.clips))
            self.scaler.scale(share).backward()  # type: ignore[no-untyped-call]
        return share.detach()

    @property
    def _is_shared(self) -> bool:
        return isinstance(self.model, DistributedDataParallel)

    def _without_reduction(self) -> AbstractContextManager[None]:
        """Gradients stay in this process until the last part."""
        if isinstance(self.model, DistributedDataParallel):
            reduced: Callable[[], AbstractContextManager[None]] = self.model.no_sync
            return reduced()
        return nullcontext()


def seed_step(seed: int, step: int) -> None:
    """Seeds torch's draws as a function of the step, the same in every process.

    Nothing of ours draws from torch's generator while it trains, dropout included: it is seeded for what a
    network of one's own draws, so that a resumed run draws the same.
    """
    digest = hashlib.blake2b(f"{seed} {step}".encode(), digest_size=7).digest()
    torch.manual_seed(int.from_bytes(digest, "little"))


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
