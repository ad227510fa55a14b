"""Layers and blocks that our networks add to pytorchvideo's: dropout by clip, and blocks computed twice."""

from __future__ import annotations

import hashlib
import struct
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mgexp.multigrid.batchnorm import untracked


@contextmanager
def no_jit_warning() -> Iterator[None]:
    """Import fvcore.nn and pytorchvideo without a warning.

    fvcore compiles a loss that we do not use with ``torch.jit.script``, which torch says is deprecated.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.script`", category=FutureWarning)
        yield


BITS = 2**32 - 1


@dataclass(frozen=True)
class Draws:
    """What the random draws of a step are a function of.

    ``first_clip``: place in the global mini-batch of the first of the clips that go through the network.
    """

    seed: int
    step: int
    first_clip: int = 0

    def after(self, num_clips: int) -> Draws:
        """Return the draws of the clips that follow the first ``num_clips``."""
        return replace(self, first_clip=self.first_clip + num_clips)


class ClipDropout(nn.Dropout):
    """Dropout of values (B, ...) whose mask does not depend on how processes or parts share a mini-batch.

    ``nn.Dropout`` takes the next numbers of its process's generator. Here each number is a hash of the seed of the
    run, the step, the place of the clip in the global mini-batch and the place of the value in the clip. So a clip
    gets the same mask in whichever process it is trained, alone or with others, on a CPU or on a GPU.

    The hash is lowbias32 (C. Wellons, "Prospecting for Hash Functions", 2018, public domain): if an input bit
    flips, an output bit flips nearly half of the time. Numbers are hashed one in the other, hash(x ^ hash(y)), the
    nested form of M. Jarzynski and M. Olano ("Hash Functions for GPU Rendering", JCGT 9(3), 2020). The cost is a
    dozen elementwise operations on what is dropped, which is the input of the classifier.

    In evaluation it is the identity, as ``nn.Dropout`` is. It has nothing in the state_dict.
    """

    draws: Tensor
    """Two words of a key and the first clip, int64. A tensor, so that a compiled network is not compiled again."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p)
        self.register_buffer("draws", torch.zeros(3, dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        scale = 1 / (1 - self.p) if self.p < 1 else 0.0
        return x * self.kept(x) * scale

    def kept(self, x: Tensor) -> Tensor:
        """Return which values of ``x`` (B, ...) are not dropped: bool, of the same shape."""
        low, high, first = self.draws.unbind()
        # Places in the global mini-batch, whichever process has the clip.
        clips = first + torch.arange(x.shape[0], device=x.device)
        values = torch.arange(x[0].numel(), device=x.device)
        of_clip = mix(mix(clips ^ low) ^ high)
        drawn = mix(of_clip[:, None] ^ mix(values))
        return (drawn >= round(self.p * 2**32)).view(x.shape)

    def set_draws(self, draws: Draws, layer: int) -> None:
        """Set what the next forward pass draws from; the number ``layer`` tells several layers apart."""
        digest = hashlib.blake2b(f"{draws.seed} {draws.step} {layer}".encode(), digest_size=8)
        for place, value in zip(
            self.draws.unbind(),
            (*struct.unpack("<II", digest.digest()), draws.first_clip),
            strict=True,
        ):
            place.fill_(value)  # does not wait for a GPU


def mix(x: Tensor) -> Tensor:
    """Apply lowbias32 to each number in [0, 2**32), int64; the results are in the same range."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & BITS
    # The factor is negative, but the same modulo 2**32: no product leaves 64 bits.
    x = ((x ^ (x >> 15)) * (0x846CA68B - 2**32)) & BITS
    return x ^ (x >> 16)


def set_draws(model: nn.Module, draws: Draws) -> None:
    """Set what the masks of all dropout layers of ``model`` are drawn from."""
    layers = (module for module in model.modules() if isinstance(module, ClipDropout))
    for number, layer in enumerate(layers):
        layer.set_draws(draws, number)


def drop_by_clip(model: nn.Module) -> nn.Module:
    """Replace every ``nn.Dropout`` in ``model`` by a ``ClipDropout``, in place, and return the model."""
    for name, module in list(model.named_modules()):
        if type(module) is nn.Dropout:
            model.set_submodule(name, ClipDropout(module.p))
    return model


class CheckpointedBlocks(nn.ModuleList):
    """The ``blocks`` of a network under the same names; training computes all but the last of them twice.

    Only what goes from block to block is kept for the backward pass, which computes the rest again. The
    statistics of batch normalisation count the first time only, so that the result is the same.
    """

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
            preserve_rng_state=False,  # the dropout is in the last block
            context_fn=partial(_contexts, block),
        )


def _run_block(block: nn.Module, x: Any) -> Any:  # noqa: ANN401 - clips, or a list of them for each pathway
    # A block writes its results over a list of pathways, but must find the same input the second time.
    return block([*x] if isinstance(x, list) else x)


def _contexts(
    block: nn.Module,
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return the contexts of the first and of the second computation."""
    return nullcontext(), untracked(block)
