"""What a clip needs of an open video, whether it is the file itself or a copy of it in a clip store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mgexp.data.decode import ReaderOpener, VideoReader, open_video
from mgexp.data.region import Region, RegionOf, Size, whole
from mgexp.data.transforms import FramesArray

SOURCE = "source"
"""The level of a picture that comes from the video itself, not from a copy."""


@dataclass(frozen=True)
class Picture:
    """Frames uint8 (T, h, w, 3) of a video of ``size`` (height, width), itself or a smaller copy of it, or a part.

    ``level`` says which: "source", or the short side that the store names the copy by, such as "160".
    """

    frames: FramesArray
    size: Size
    level: str


class Video(Protocol):
    """An open video."""

    @property
    def duration_seconds(self) -> float:
        """Seconds from the first frame to the end of the last."""

    def frames_at(
        self,
        times_seconds: Sequence[float] | NDArray[np.float64],
        short_side: float,
        region_of: RegionOf = whole,
    ) -> Picture:
        """The frames on display at the given times, as sharp as a short side of ``short_side`` pixels needs.

        Of each the part that ``region_of`` the video's size, in its pixels, whichever copy they come from.
        Raises VideoError where the file cannot give them.
        """


Opener = Callable[[str], AbstractContextManager[Video]]
"""From the path of a video to the open video; raises VideoError where it cannot be opened."""


class SourceVideo:
    """A video file as it is: it has one size, whatever short side is asked for."""

    def __init__(self, reader: VideoReader) -> None:
        self._reader = reader

    @property
    def duration_seconds(self) -> float:
        """Seconds from the first frame to the end of the last."""
        return self._reader.duration_seconds

    def frames_at(
        self,
        times_seconds: Sequence[float] | NDArray[np.float64],
        short_side: float,
        region_of: RegionOf = whole,
    ) -> Picture:
        """The frames on display at the given times; see ``VideoReader.frames_at``."""
        sizes: list[Size] = []

        def region(size: Size) -> Region:
            sizes.append(size)
            return region_of(size)

        frames = self._reader.frames_at(times_seconds, region)
        return Picture(frames, sizes[-1], SOURCE)


@dataclass(frozen=True)
class SourceOpener:
    """Opens video files as they are, by one of the decoders; an ``Opener``."""

    open_reader: ReaderOpener

    @contextmanager
    def __call__(self, path: str) -> Iterator[SourceVideo]:
        """The video file itself, closed on leaving the context. Raises VideoError if it cannot be opened."""
        with self.open_reader(path) as reader:
            yield SourceVideo(reader)


open_source = SourceOpener(open_video)
"""By the decoder that is always there."""
