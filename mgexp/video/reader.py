"""The interface of an open video, which is a video file, a folder of images, or copies in a clip store.

The region of a clip is chosen when the first frame is decoded, because PyAV cannot tell from a header whether the
picture is turned. Decoding a frame only to find out would make the decoding of small videos a seventh slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FramesArray = NDArray[np.uint8]
"""Decoded frames: uint8, RGB, (T, H, W, 3)."""
Size = tuple[int, int]
"""Height and width of a picture, in pixels."""
Times = Sequence[float] | NDArray[np.float64]
"""Moments in seconds from the start of the video."""

TOLERANCE_SECONDS = 1e-6
"""A frame counts as on display this much before its timestamp. So k / frame_rate is a moment of
frame k, even if rounding made it a little too small."""


class VideoError(Exception):
    """A video file that cannot be used: its ``path``, and the ``reason`` in words."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True)
class Region:
    """A rectangle of a picture, in pixels: rows [top, top + height), columns [left, left + width)."""

    top: int
    left: int
    height: int
    width: int

    @property
    def rows(self) -> slice:
        return slice(self.top, self.top + self.height)

    @property
    def columns(self) -> slice:
        return slice(self.left, self.left + self.width)

    def on(self, size: Size, copy_size: Size) -> Region:
        """Return the same part, at least a pixel, of a copy of ``copy_size`` of this picture of ``size``."""
        tall, wide = copy_size[0] / size[0], copy_size[1] / size[1]
        # A region of less than a pixel may round to the edge behind the last one.
        top = min(copy_size[0] - 1, round(self.top * tall))
        left = min(copy_size[1] - 1, round(self.left * wide))
        bottom = max(top + 1, round((self.top + self.height) * tall))
        right = max(left + 1, round((self.left + self.width) * wide))
        return Region(top, left, bottom - top, right - left)


def whole(size: Size) -> Region:
    """Return the region that is all of a picture of ``size``."""
    return Region(0, 0, *size)


Cut = Callable[[Size], Region]
"""Chooses the region of a clip from the height and the width of its video as it is displayed."""


@dataclass(frozen=True)
class Frames:
    """The frames of a video at chosen times: ``pixels`` of a ``region``, uint8 RGB (T, h, w, 3).

    ``size``: height and width of the video as it is displayed, in whose pixels the region is. From a copy in the
    store, h and w are the copy's own pixels in the region.
    """

    pixels: FramesArray
    size: Size
    region: Region


class Video(Protocol):
    """An open video."""

    @property
    def duration_seconds(self) -> float:
        """Seconds from the first frame to the end of the last."""

    def frames_at(
        self, times_seconds: Times, short_side: float | None = None, cut: Cut = whole
    ) -> Frames:
        """Return the frames on display at the given times, and in them the region that ``cut`` chooses.

        Times count from the start of the video stream, in any order; they may repeat. The frame on display is the
        last one whose timestamp is not later than the time, and else the first frame. So a clip that is longer
        than the video repeats its last frame. Pictures are turned as the file asks, by quarter turns.

        ``short_side``: the pixels that the short side of a copy must have; None: the frames come from the video
        itself. Raises VideoError if the file cannot give the frames, or if they differ in size.
        """


Opener = Callable[[str], AbstractContextManager[Video]]
"""Opens the video at a path, and closes it at the end of the context. Raises VideoError if it does not open."""


DEFAULT_FRAMES_FPS = 30.0
"""The frame rate of folders of images in clip stores, and the default of DATA.FRAMES_FPS."""
