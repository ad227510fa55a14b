"""Blocks of a network that keep less for the backward pass, and compute the rest again."""

from __future__ import annotations

import hashlib
import struct
import warnings
from collections.abc import Callable, Iterator
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
    """For imports of fvcore.nn and pytorchvideo: fvcore compiles a loss, which is not used here, with
    ``torch.jit.script``, and torch says on every start that this is deprecated."""
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
        """For the clips that follow the first ``num_clips``."""
        return replace(self, first_clip=self.first_clip + num_clips)


class ClipDropout(nn.Dropout):
    """``nn.Dropout`` of values (B, ...) whose mask is a function of ``set_draws`` and of their place; see above.

    In evaluation it is the identity, as ``nn.Dropout``; the state_dict has nothing of it.
    """

    draws: Tensor
    """Two words of a key and the first clip, int64. A tensor, so that a compiled network is not compiled anew."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p)
        self.register_buffer("draws", torch.zeros(3, dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        scale = 1 / (1 - self.p) if self.p < 1 else 0.0
        return x * self.kept(x) * scale

    def kept(self, x: Tensor) -> Tensor:
        """Which values of ``x`` (B, ...) are not dropped: bool, of its shape."""
        low, high, first = self.draws.unbind()
        clips = first + torch.arange(x.shape[0], device=x.device)
        values = torch.arange(x[0].numel(), device=x.device)
        of_clip = mix(mix(clips ^ low) ^ high)
        drawn = mix(of_clip[:, None] ^ mix(values))
        return (drawn >= round(self.p * 2**32)).view(x.shape)

    def set_draws(self, draws: Draws, layer: int) -> None:
        """The masks of the next forward pass; ``layer`` tells those of several layers apart."""
        digest = hashlib.blake2b(f"{draws.seed} {draws.step} {layer}".encode(), digest_size=8)
        for place, value in zip(
            self.draws.unbind(),
            (*struct.unpack("<II", digest.digest()), draws.first_clip),
            strict=True,
        ):
            place.fill_(value)  # a GPU is not waited for


def mix(x: Tensor) -> Tensor:
    """lowbias32 of each number in [0, 2**32), int64 to the same."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & BITS
    # The factor is negative, but the same modulo 2**32: no product leaves 64 bits.
    x = ((x ^ (x >> 15)) * (0x846CA68B - 2**32)) & BITS
    return x ^ (x >> 16)


def set_draws(model: nn.Module, draws: Draws) -> None:
    """Sets what the masks of all dropout layers of ``model`` are drawn from."""
    layers = (module for module in model.modules() if isinstance(module, ClipDropout))
    for number, layer in enumerate(layers):
        layer.set_draws(draws, number)


def drop_by_clip(model: nn.Module) -> nn.Module:
    """``model`` with every ``nn.Dropout`` replaced by a ``ClipDropout``, in place."""
    for name, module in list(model.named_modules()):
        if type(module) is nn.Dropout:
            model.set_submodule(name, ClipDropout(module.p))
    return model


class CheckpointedBlocks(nn.ModuleList):
    """The ``blocks`` of a network, under the same names; in training all but the last are computed twice.

    What goes from block to block is kept, and nothing inside them. Statistics of batch normalisation are noted
    the first time alone, so that the result is the same.
    """

    def __iter__(self) -> Iterator[Any]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, position: Any) -> Any:  # noqa: ANN401 - as that of ModuleList
        block = super().__getitem__(position)
        recomputes = self.training and torch.is_grad_enabled()
        if not recomputes or not isinstance(position, int) or position % len(self) == len(self) - 1:
            return block
        return _twice(block)


def _twice(block: nn.Module) -> Callable[[Any], Any]:
    return partial(
        checkpoint,
        partial(_run, block),
        use_reentrant=False,
        preserve_rng_state=False,  # the dropout is in the last block
        context_fn=partial(_contexts, block),
    )


def _run(block: nn.Module, x: Any) -> Any:  # noqa: ANN401 - clips, or a list of them for each pathway
    """A list is copied: the block writes its results over it, and is to find the same the second time."""
    return block([*x] if isinstance(x, list) else x)


def _contexts(
    block: nn.Module,
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    return nullcontext(), untracked(block)
