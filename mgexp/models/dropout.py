"""Dropout whose mask does not depend on how a mini-batch is shared: among processes, or in parts.

``nn.Dropout`` takes the next numbers of its process's generator. Here each number is a hash of the seed of the
run, the step, the place of the clip in the global mini-batch and that of the value in the clip, so that a clip has
the same mask in whichever process it is trained, alone or with others, on a CPU or on a GPU.

The hash is lowbias32 (C. Wellons, "Prospecting for Hash Functions", 2018, public domain), in which an output bit
flips nearly as often as not when an input bit does. Numbers are hashed one in the other, hash(x ^ hash(y)): the
nested form of M. Jarzynski and M. Olano ("Hash Functions for GPU Rendering", JCGT 9(3), 2020). The cost is a dozen
elementwise operations on what is dropped, which is the input of the classifier.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

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
