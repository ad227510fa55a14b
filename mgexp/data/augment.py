"""Random changes to the pixels of a training clip, the same for all of its frames.

A clip gets torchvision's RandAugment (Cubuk et al., CVPR Workshops 2020, arxiv.org/abs/1909.13719),
then colour jitter, then random erasing (Zhong et al., AAAI 2020, arxiv.org/abs/1708.04896). Erasing
comes last, so that an erased rectangle stays plain. Operations, strengths and rectangle are drawn
once for all frames. Some operations depend on the pixels themselves: contrast on their mean,
autocontrast and equalize on their histogram. These compute mean and histogram for each frame.

The strengths may depend on the shape of the clip. In progressive learning (EfficientNetV2,
Tan and Le, ICML 2021, arxiv.org/abs/2104.00298), small images get weaker augmentation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

MAX_MAGNITUDE = 30
"""The largest magnitude. Source: torchvision's RandAugment, which has 31 magnitudes from 0 by default."""


@dataclass(frozen=True)
class Augment:
    """The changes to a training clip after it is cropped and resized. A change with the value 0 is off.

    ``randaugment_ops``: number of operations on each clip, with ``randaugment_magnitude`` out of
    MAX_MAGNITUDE. ``color_jitter``: for the value x, factors of brightness, contrast and saturation
    are drawn from [1 − x, 1 + x]. ``erasing_share``: share of the clips in which a rectangle of 2
    to 33 % of the frame gets the colour ``erased`` (RGB, 0 to 255).

    Magnitude, jitter and share are those of the ``full`` shape: T frames, crop S. A clip of t × s² has the share
    v = t·s² / (T·S²) of its pixels. It gets the strengths times c + (1 − c)·v, where c is ``coarse_strength``.
    With c = 1 all clips get the same strengths; with 0 a clip of half the pixels gets half the strengths; with 2
    small clips get up to twice the strengths. It is our choice that strengths are linear in v. EfficientNetV2
    takes equal steps from size to size. The number of RandAugment's operations stays the same, and some
    operations have no magnitude.
    """

    randaugment_ops: int
    randaugment_magnitude: int
    color_jitter: float
    erasing_share: float
    erased: tuple[int, int, int]
    full: tuple[int, int]
    coarse_strength: float = 1.0

    def __call__(self, frames: Tensor, seed: int) -> Tensor:
        """Change ``frames``, uint8 (t, s, s, 3), on their device to the same shape, contiguous.

        ``seed`` seeds torch's generator for the CPU. From it torchvision draws everything, also for frames on a
        GPU. Afterwards the generator gets back the state that it had before.
        """
        num_frames, crop = frames.shape[:2]
        with torch.random.fork_rng(devices=[]):
            # torch.manual_seed would also seed the generators of GPUs, and fork_rng(devices=[]) restores only
            # the generator of the CPU.
            torch.default_generator.manual_seed(seed)
            # torchvision takes (T, 3, S, S) as one sample, so all frames get the same changes.
            planes = frames.permute(0, 3, 1, 2)
            for transform in self.transforms(self.factor(num_frames, crop)):
                planes = transform(planes)
        return planes.permute(0, 2, 3, 1).contiguous()

    def factor(self, num_frames: int, crop: int) -> float:
        """Return the factor of the strengths for ``num_frames`` × ``crop``²; exactly 1 at the full shape."""
        volume = num_frames * crop**2 / (self.full[0] * self.full[1] ** 2)
        return 1 + (self.coarse_strength - 1) * (1 - volume)

    @lru_cache(maxsize=64)  # noqa: B019 - an Augment is a small value, and so is what the cache keeps
    def transforms(self, factor: float) -> tuple[Callable[[Tensor], Tensor], ...]:
        """Make the transforms that are on, in order, for uint8 (T, 3, S, S), with strengths times ``factor``."""
        from mgexp.wheels import transforms_v2

        parts: list[Callable[[Tensor], Tensor]] = []
        if self.randaugment_ops:
            # torchvision takes whole magnitudes, so these strengths follow the shape in steps.
            magnitude = round(self.randaugment_magnitude * factor)
            parts.append(
                transforms_v2.RandAugment(
                    self.randaugment_ops, magnitude, num_magnitude_bins=MAX_MAGNITUDE + 1
                )
            )
        if self.color_jitter:
            jitter = self.color_jitter * factor
            parts.append(
                transforms_v2.ColorJitter(brightness=jitter, contrast=jitter, saturation=jitter)
            )
        if self.erasing_share:
            share = self.erasing_share * factor
            parts.append(transforms_v2.RandomErasing(share, value=self.erased))
        return tuple(parts)
