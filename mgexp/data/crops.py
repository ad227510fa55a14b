"""Random crops of training: the part of a video's frames that a clip shows, and the clip that is made from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor

from mgexp.errors import InputError
from mgexp.video.reader import Cut, Region, Size

Change = Callable[[Tensor, int], Tensor]
"""Changes the frames of a clip, uint8 (T, S, S, 3), by draws from a seed: see ``mgexp/data/augment.py``."""

SOURCE_SHORT_SIDE = 256
"""Pixels of the short side of a video, or of its copy in a store. Assumption: most copies of Kinetics-400 have it.
A video of full size has larger regions, so it should be read from a store."""


@dataclass(frozen=True)
class SquareCrop:
    """Square crops from a frame that is resized to a short side of random length.

    ``jitter``: least and largest short side, in pixels, at the full crop. A side is uniform in between. With
    ``inverse_uniform`` (SSv2 and Charades), 1 / side is uniform instead. For a smaller crop the least side is
    scaled by crop / ``full_crop``; the largest is not. Source: released code, slowfast/datasets/kinetics.py (which
    also rounds the least) and transform.py, random_short_side_scale_jitter.
    Raises InputError for a jitter that cannot hold the crop.
    """

    jitter: tuple[int, int]
    full_crop: int
    inverse_uniform: bool = False

    def __post_init__(self) -> None:
        least, largest = self.jitter
        if not self.full_crop <= least <= largest:
            drawn = f"short sides are drawn from {least} to {largest} pixels"
            remedy = "give the least first, and none below the crop"
            raise InputError([f"{drawn}, but the crop is {self.full_crop}: {remedy}"])

    def draw(self, crop: int, rng: np.random.Generator) -> tuple[float, Cut]:
        """Draw the short side for a crop of ``crop`` pixels; also return what draws its region in a frame."""
        least, largest = self.jitter[0] * crop / self.full_crop, self.jitter[1]
        if self.inverse_uniform:
            short_side = 1.0 / rng.uniform(1.0 / largest, 1.0 / least)
        else:
            short_side = rng.uniform(least, largest)
        return short_side, partial(random_region, crop=crop, short_side=short_side, rng=rng)

    def largest_side(self) -> int:
        """Return the pixels along a side of the largest region of a video of the usual size.

        It is the same for crops of all sizes, because a smaller crop is cut from a frame that is as much smaller.
        """
        return math.ceil(SOURCE_SHORT_SIDE * self.full_crop / self.jitter[0])


def random_region(size: Size, crop: int, short_side: float, rng: np.random.Generator) -> Region:
    """Draw the source square of a random crop of ``crop`` pixels from a frame resized to ``short_side``.

    The released code resizes the whole frame and then cuts the crop. We cut the square first and
    then resize it. This shows the same part, and touches only the pixels that are kept. Every
    offset of the square is equally likely. (The released code never draws the last one.)
    The top is drawn first, then the left. Source: released code, slowfast/datasets/transform.py,
    random_crop.
    """
    height, width = size
    # For a source of very few pixels, the rounded number could be 0.
    side = max(1, round(crop * min(height, width) / short_side))
    top = int(rng.integers(0, height - side + 1))
    left = int(rng.integers(0, width - side + 1))
    return Region(top, left, side, side)


@dataclass(frozen=True)
class RelativeCrop:
    """Crops that are a random share of the frame, of random shape, as networks of images are trained with.

    ``areas``: least and largest area / that of the frame. ``aspects``: least and largest width / height. A crop is
    resized to a square, so the picture is stretched. Every shape of a schedule draws the same shares.
    Source: released code, slowfast/datasets/transform.py, random_resized_crop, which is torchvision's
    RandomResizedCrop.

    No short side is drawn. The frames come from the copy in a store that a short side of ``short_side`` pixels at
    the crop ``full_crop`` needs, or one as much smaller as the crop is. The released code cuts such crops out of
    the files as they are, and those of Kinetics usually have 256 to 340 pixels.
    """

    areas: tuple[float, float]
    aspects: tuple[float, float]
    short_side: int
    full_crop: int

    def draw(self, crop: int, rng: np.random.Generator) -> tuple[float, Cut]:
        """Return the short side of the frames for a crop of ``crop`` pixels, and what draws a region of them."""
        return self.short_side * crop / self.full_crop, partial(self.region, rng=rng)

    def largest_side(self) -> int:
        """Return the side of a square of as many pixels as the largest region."""
        least, largest = self.aspects
        # Wide crops are largest in wide frames, and tall crops in tall frames.
        return math.ceil(self.short_side * math.sqrt(max(1.0, largest, 1 / least)))

    def region(self, size: Size, rng: np.random.Generator) -> Region:
        """Draw the region of a frame. If ten draws do not fit, take the largest one in the centre.

        An area is uniform, the logarithm of an aspect ratio too, and every offset of a region that fits.
        """
        height, width = size
        least, largest = self.aspects
        for _ in range(10):
            area = rng.uniform(*self.areas) * height * width
            aspect = math.exp(rng.uniform(math.log(least), math.log(largest)))
            wide, tall = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < wide <= width and 0 < tall <= height:
                top = int(rng.integers(0, height - tall + 1))
                left = int(rng.integers(0, width - wide + 1))
                return Region(top, left, tall, wide)
        wide, tall = width, height
        if width / height < least:
            tall = max(1, round(width / least))
        elif width / height > largest:
            wide = max(1, round(height * largest))
        return Region((height - tall) // 2, (width - wide) // 2, tall, wide)


def resize(frames: Tensor, crop: int) -> Tensor:
    """Resize uint8 ``frames`` (T, h, w, 3) to ``crop`` × ``crop`` pixels: uint8, (T, crop, crop, 3), contiguous.

    Resizing is bilinear with antialiasing. On a GPU, torchvision computes it in float32 and rounds it to uint8.
    """
    if frames.shape[1:3] == (crop, crop):
        return frames.contiguous()
    # torchvision takes seconds to import, and most commands do not need it.
    from mgexp.wheels import transforms_v2

    # The region is a view into larger frames, and is not copied first: torch resizes channels-last
    # frames with strides twice as fast as contiguous planes. (Measured with torch 2.15, 16 frames
    # from 60 to 64 pixels: 131 against 290 us.)
    resized: Tensor = transforms_v2.functional.resize(
        frames.permute(0, 3, 1, 2), [crop, crop], antialias=True
    )
    return resized.permute(0, 2, 3, 1).contiguous()


def finish(frames: Tensor, crop: int, augment: Change | None, seed: int) -> Tensor:
    """Make the frames of a clip, uint8 (T, crop, crop, 3), from those of its region: resize, then augment."""
    resized = resize(frames, crop)
    return augment(resized, seed) if augment else resized
