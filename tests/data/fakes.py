"""Videos that are made up, and requests for clips of them."""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from mgexp.data.clips import RelativeCrop, SquareCrop, TrainingClips
from mgexp.video.reader import Frames, VideoError, whole


def fake_frames(pixels: np.ndarray, cut) -> Frames:
    """The region that ``cut`` chooses of whole frames, uint8 (T, H, W, 3)."""
    size = pixels.shape[1:3]
    region = cut(size)
    return Frames(pixels[:, region.rows, region.columns], size, region)


class FakeReader:
    """A video of 2 s at 30 fps, 32 x 48: each pixel holds its frame, its row and its column."""

    duration_seconds = 2.0
    height = 32
    width = 48

    def frames_at(self, times_seconds, short_side, cut=whole):
        frames = np.zeros((len(times_seconds), self.height, self.width, 3), dtype=np.uint8)
        shown = np.minimum(np.floor(times_seconds * 30 + 1e-6), 59)
        frames[..., 0] = shown[:, None, None]
        frames[..., 1] = np.arange(self.height)[:, None]
        frames[..., 2] = np.arange(self.width)
        return fake_frames(frames, cut)


def opener_of(reader, broken=()):
    """Opens every path as ``reader``, but for the ``broken`` ones."""

    @contextmanager
    def opener(path):
        if path in broken:
            raise VideoError(path, "is broken")
        yield reader

    return opener


def training_clips_of(
    records, opener, jitter=(32, 32), full_crop=32, inverse_uniform=False, relative=None, **changes
):
    """Whole pictures of 32 pixels at 30 frames per second, none of them flipped, but for ``changes``.

    ``relative``: the areas and the aspects of relative crops.
    """
    crops = SquareCrop(jitter, full_crop, inverse_uniform)
    if relative:
        crops = RelativeCrop(*relative, jitter[1], full_crop)
    plain = {"target_fps": 30, "crops": crops, "flip": False}
    return TrainingClips(records, opener=opener, **(plain | changes))


@dataclass(frozen=True)
class FakeRequest:
    index: int = 0
    frames: int = 4
    crop: int = 32
    stride_range: tuple[int, int] | None = (2, 8)
    seed: tuple[int, int] = (0, 0)


class Pinned(torch.Tensor):
    """Stands in for page-locked memory, which needs an accelerator."""

    def pin_memory(self):
        return f"pinned {self.dtype}"
