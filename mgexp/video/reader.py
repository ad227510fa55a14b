"""What a clip needs of an open video, whether it is the file itself or a copy of it in a clip store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mgexp.data.transforms import FramesArray
from mgexp.errors import InputError
from mgexp.video.region import Region, RegionOf, Size, whole

TOLERANCE_SECONDS = 1e-6
"""A frame is on display this much early, so that k / frame_rate, rounded, is a time of frame k."""

Backend = Literal["auto", "pyav", "torchcodec"]


class VideoError(Exception):
    """One video file that cannot be used: ``path``, and the ``reason`` in words."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class VideoReader(Protocol):
    """An open video file."""

    @property
    def duration_seconds(self) -> float:
        """Seconds from the first frame to the end of the last, as the header says; else by reading the file."""

    def frames_at(
        self, times_seconds: Sequence[float] | NDArray[np.float64], region_of: RegionOf = whole
    ) -> NDArray[np.uint8]:
        """The frames on display at the given times: uint8, RGB, (T, H, W, 3).

        Of each frame only the part that ``region_of`` its size: the size of all frames, which it is given
        turned, and maybe more than once.

        Times count from the start of the video stream, in any order; they may repeat. The frame on display
        is the last one whose timestamp is not later than the time. Before the first frame it is the first,
        past the end the last: a clip longer than the video repeats its last frame.
        A picture is turned as the file asks players to turn it, to the nearest quarter turn; H and W are
        those of the turned picture. (A matrix that also mirrors or scales is read for its turn alone.)
        Raises VideoError where the file cannot give them.
        """


ReaderOpener = Callable[[str], AbstractContextManager[VideoReader]]
"""From a path to the reader of that file, closed on leaving the context; raises VideoError if it does not open."""


@dataclass(frozen=True)
class Decoder:
    """One of the decoders: ``name`` with versions, for people, and ``opener``, which travels to workers."""

    name: str
    opener: ReaderOpener


def open_video(path: str) -> AbstractContextManager[VideoReader]:
    """The reader of a video file by the decoder that is always there, PyAV."""
    from mgexp.video.pyav import open_pyav

    return open_pyav(path)


def choose_decoder(backend: Backend) -> Decoder:
    """The decoder that DATA.DECODING_BACKEND asks for; auto: torchcodec where it works, else PyAV.

    Raises InputError where torchcodec is asked for and does not work here.
    """
    if backend != "pyav":
        from mgexp.video import torchcodec_reader as decode_torchcodec

        fault = decode_torchcodec.fault()
        if not fault:
            return Decoder(decode_torchcodec.version(), decode_torchcodec.open_torchcodec)
        if backend == "torchcodec":
            raise InputError([_remedy(fault)])
    import av

    return Decoder(f"PyAV {av.__version__}", open_video)


def _remedy(fault: str) -> str:
    return (
        f"DATA.DECODING_BACKEND = torchcodec, but it does not work here: {fault}. Install it with "
        "pip install 'mgexp[torchcodec]' and FFmpeg's shared libraries with apt-get install ffmpeg "
        "(or conda install -c conda-forge ffmpeg), or set DATA.DECODING_BACKEND auto or pyav"
    )


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
