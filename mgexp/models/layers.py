"""Layers and blocks beside pytorchvideo's: dropout by clip, and blocks that are computed twice."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mgexp.errors import InputError
from mgexp.models.names import BLOCK, head_of
from mgexp.multigrid.batchnorm import grouped_layers, keeping


def freeze(model: nn.Module, num_blocks: int) -> nn.Module:
    """Freeze the first ``num_blocks`` blocks and all before them; -1: all but the classifier. Return the model.

    The parameters get no gradients, and batch normalisation keeps its running statistics. Raises InputError if the
    network has no block behind these, or no classifier that is called head.
    """
    names = [name for name, _ in model.named_parameters()]
    if num_blocks == -1:
        later = set(head_of(names))
    else:
        numbers = [int(match[1]) if (match := BLOCK.search(name)) else None for name in names]
        later = set(names[numbers.index(num_blocks) :] if num_blocks in numbers else ())
    if not later:
        missing = (
            "classifier called head" if num_blocks == -1 else f"block {num_blocks} behind these"
        )
        raise InputError([f"MODEL.FREEZE = {num_blocks}: the network has no {missing}"])
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in later)
    for layer in grouped_layers(model):
        if not layer.weight.requires_grad:
            layer.is_frozen = True
    return model


BITS = 2**32 - 1
"""Mask of the lowest 32 bits. torch has few operations on uint32, so the hash uses int64."""


@dataclass(frozen=True)
class Draws:
    """Numbers that determine the draws of a step. ``first_clip`` is its place in the global mini-batch."""

    seed: int
    step: int
    first_clip: int = 0

    def after(self, num_clips: int) -> Draws:
        """Return the draws of the clips that follow the first ``num_clips``."""
        return replace(self, first_clip=self.first_clip + num_clips)


class ClipDropout(nn.Dropout):
    """Dropout of values (B, ...) with a mask that depends only on the clip and the step.

    ``nn.Dropout`` takes the next numbers of its process's generator. Here each number is a hash of
    four values: the seed of the run, the step, the place of the clip in the global mini-batch, and
    the place of the value in the clip. So a clip gets the same mask in every process, alone or with
    others, on a CPU or on a GPU.

    In evaluation the layer is the identity, like ``nn.Dropout``. It adds nothing to the state_dict.
    """

    draws: Tensor
    """Two words of a key, the first clip, and the number of clips, int64.

    With Python numbers instead of a tensor, torch would compile the network again when they change.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p)
        self.register_buffer("draws", torch.tensor([0, 0, 0, 1]), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        scale = 1 / (1 - self.p) if self.p < 1 else 0.0
        return x * self.kept(x) * scale

    def kept(self, x: Tensor) -> Tensor:
        """Return a bool mask of the shape of ``x`` (B, ...): True where a value is not dropped."""
        low, high, first, num_clips = self.draws.unbind()
        # These are places in the global mini-batch, so they do not depend on the process. A network may take the
        # frames of a clip as rows of their own.
        rows_per_clip = x.shape[0] // num_clips
        clips = first * rows_per_clip + torch.arange(x.shape[0], device=x.device)
        values = torch.arange(x[0].numel(), device=x.device)
        # Several numbers are hashed as hash(x ^ hash(y)), the nested form of M. Jarzynski and M. Olano ("Hash
        # Functions for GPU Rendering", JCGT 9(3), 2020). It costs a dozen operations on the input of the
        # classifier.
        of_clip = mix(mix(clips ^ low) ^ high)
        drawn = mix(of_clip[:, None] ^ mix(values))
        # Whole numbers are exact on every device. In float32 a number of 32 bits would be rounded.
        return (drawn >= round(self.p * 2**32)).view(x.shape)

    def set_draws(self, draws: Draws, num_clips: int, layer: int) -> None:
        """Set the draws of a forward pass of ``num_clips`` clips. ``layer`` is the number of this layer."""
        # The number of the layer is part of the key, or two layers of one size would drop the same values.
        digest = hashlib.blake2b(f"{draws.seed} {draws.step} {layer}".encode(), digest_size=8)
        for place, value in zip(
            self.draws.unbind(),
            (*struct.unpack("<II", digest.digest()), draws.first_clip, num_clips),
            strict=True,
        ):
            # fill_ starts a kernel and, unlike a copy of a tensor from the CPU, does not wait for
            # the GPU.
            place.fill_(value)


class DropPath(ClipDropout):
    """Stochastic depth (Huang et al., ECCV 2016): drop a residual branch for whole clips, and scale the others.

    Which clips depends only on the step and on the place of the clip in the global mini-batch, as in ClipDropout.
    """

    def kept(self, x: Tensor) -> Tensor:
        """Return a bool mask (B, 1, ...) of the branch ``x`` (B, ...): True for a clip that is not dropped."""
        of_clips = super().kept(x.detach().flatten(1)[:, :1])
        return of_clips.view(-1, *[1] * (x.ndim - 1))


def mix(x: Tensor) -> Tensor:
    """Apply lowbias32 to each number in [0, 2**32), int64; the results are in the same range."""
    # C. Wellons, "Prospecting for Hash Functions", 2018, public domain: if an input bit flips, an output bit flips
    # nearly half of the time.
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & BITS
    # The second factor of lowbias32 is 0x846CA68B. We subtract 2**32, which changes nothing modulo
    # 2**32. The factor is then so small that no product leaves the range of int64.
    x = ((x ^ (x >> 15)) * (0x846CA68B - 2**32)) & BITS
    return x ^ (x >> 16)


def set_draws(model: nn.Module, draws: Draws, num_clips: int) -> None:
    """Set the draws of all dropout layers of ``model`` for a forward pass of ``num_clips`` clips."""
    layers = (module for module in model.modules() if isinstance(module, ClipDropout))
    for number, layer in enumerate(layers):
        layer.set_draws(draws, num_clips, number)


def drop_by_clip(model: nn.Module) -> nn.Module:
    """Replace every ``nn.Dropout`` in ``model`` by a ``ClipDropout``, in place, and return the model."""
    # A layer that a network has under two names becomes two layers, as both draw for themselves.
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if type(module) is nn.Dropout:
            model.set_submodule(name, ClipDropout(module.p))
    return model


class CheckpointedBlocks(nn.ModuleList):
    """The ``blocks`` of a network under the same names.

    Training computes every block twice, except the last one. Only the tensors between the blocks
    are kept for the backward pass, which computes the others again. The second time the statistics
    of batch normalisation do not move, so the result is the same.
    """

    # The iterator of nn.ModuleList does not call __getitem__, so we give our own.
    def __iter__(self) -> Iterator[Any]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, position: Any) -> Any:  # noqa: ANN401 - as that of ModuleList
        block = super().__getitem__(position)
        recomputes = self.training and torch.is_grad_enabled()
        if not recomputes or not isinstance(position, int) or position % len(self) == len(self) - 1:
            return block
        return partial(
            checkpoint,
            partial(_run_block, block),
            use_reentrant=False,
            context_fn=lambda: (nullcontext(), keeping(block)),
        )


def _run_block(block: nn.Module, x: Any, *more: Any, **named: Any) -> Any:  # noqa: ANN401 - clips, or a list of them for each pathway
    # With several pathways a block writes its results into the list that it gets. We pass a copy of
    # the list, so that the second computation finds the same input.
    return block([*x] if isinstance(x, list) else x, *more, **named)
