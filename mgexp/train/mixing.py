"""Mixup and CutMix: training clips blended with their neighbours in the mini-batch.

Mixup (Zhang et al., ICLR 2018) is a weighted mean of two clips, CutMix (Yun et al., ICCV 2019) puts a box of one
clip into another, the same box in all frames. The loss is the mean of the losses for both labels with the same
weights. As in timm and PySlowFast, a step draws one weight for all its clips. They blend a clip with the one at
the opposite end of a process's mini-batch. Here it is its neighbour, so that any number of processes trains on the
same clips.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from mgexp.config.keys import AugKeys
from mgexp.models.layers import Draws
from mgexp.train.task import Loss

SWITCH = 0.5
"""Share of the steps with CutMix, if a run has both (PySlowFast's MIXUP.SWITCH_PROB)."""


def is_mixed(aug: AugKeys) -> bool:
    return bool(aug.MIXUP_ALPHA or aug.CUTMIX_ALPHA)


@dataclass(frozen=True)
class Mixing:
    """The α of the two kinds, 0: off. Each draws its weight from a beta distribution with both parameters α."""

    mixup_alpha: float
    cutmix_alpha: float

    def draw(self, draws: Draws, crop: int) -> tuple[float, tuple[slice, slice] | None]:
        """Draw the weight of the own clip, and for CutMix the box of the neighbour: rows and columns."""
        digest = hashlib.blake2b(
            f"mixing {draws.seed} {draws.step}".encode(), digest_size=8
        ).digest()
        generator = np.random.default_rng(int.from_bytes(digest, "little"))
        # All numbers are drawn in any case, so that no draw depends on another one.
        switch, tall, wide = generator.random(3)
        is_cut = (
            switch < SWITCH if self.mixup_alpha and self.cutmix_alpha else self.cutmix_alpha > 0
        )
        alpha = self.cutmix_alpha if is_cut else self.mixup_alpha
        own = float(generator.beta(alpha, alpha))
        if not is_cut:
            return own, None
        side = crop * (1 - own) ** 0.5
        rows, columns = (
            slice(
                max(0, round(middle * crop - side / 2)), min(crop, round(middle * crop + side / 2))
            )
            for middle in (tall, wide)
        )
        # The box may reach over the edge, so its area decides.
        area = (rows.stop - rows.start) * (columns.stop - columns.start)
        return 1 - area / crop**2, (rows, columns)

    def apply(self, loss: Loss, draws: Draws, clips: Tensor, labels: Tensor) -> tuple[Tensor, Loss]:
        """Return the mixed clips (B, 3, T, S, S), and the loss of their logits. B is even."""
        own, box = self.draw(draws, clips.shape[-1])
        # Both clips of a pair take from the other as it was, so the clips themselves must not change.
        mixed = clips.clone()
        for first, second in ((0, 1), (1, 0)):
            mine, other = mixed[first::2], clips[second::2]
            if box is None:
                mine.lerp_(other, 1 - own)
            else:
                mine[..., box[0], box[1]] = other[..., box[0], box[1]]
        neighbours = labels.view(-1, 2, *labels.shape[1:]).flip(1).flatten(0, 1)

        def mixed_loss(logits: Tensor, given: Tensor) -> Tensor:
            return own * loss(logits, given) + (1 - own) * loss(logits, neighbours)

        return mixed, mixed_loss
