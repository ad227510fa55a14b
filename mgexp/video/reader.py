"""What every open video can do, whether it is the file itself or copies of it in a clip store.

Loading a clip takes three steps: open the video, ask for the frames at some times, and ask those frames for the
RGB pixels of a region. The frames know their size before any pixel is converted, so that a random region can be
drawn for that size. (The file as a whole is not asked for its size: PyAV cannot tell from a header that a phone
held its camera upright, and decoding a frame for that alone would make decoding small videos a seventh slower.)

PyAV always works, since its wheels contain FFmpeg. torchcodec is optional and needs FFmpeg's shared libraries.
Both give the same frames for the same times. Each is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mgexp.errors import InputError

FramesArray = NDArray[np.uint8]
"""Decoded frames: uint8, RGB, (T, H, W, 3)."""
Size = tuple[int, int]
"""Height and width of a picture, in pixels."""
Times = Sequence[float] | NDArray[np.float64]
"""Moments in seconds from the start of the video."""
Backend = Literal["auto", "pyav", "torchcodec"]

TOLERANCE_SECONDS = 1e-6
"""A frame is on display this much early, so that k / frame_rate, rounded, is a time of frame k."""
SOURCE = "source"
"""The level of frames that come from the video itself, not from a copy."""


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
        """The rows of the picture that are in the region."""
        return slice(self.top, self.top + self.height)

    @property
    def columns(self) -> slice:
        """The columns of the picture that are in the region."""
        return slice(self.left, self.left + self.width)

    def on(self, size: Size, copy_size: Size) -> Region:
        """Return the same part of a copy; ``size`` is the size of the picture that this region is drawn on.

        The edges are rounded to whole pixels of the copy, of which the region has at least one.
        """
        tall, wide = copy_size[0] / size[0], copy_size[1] / size[1]
        top, left = round(self.top * tall), round(self.left * wide)
        bottom = max(top + 1, round((self.top + self.height) * tall))
        right = max(left + 1, round((self.left + self.width) * wide))
        return Region(top, left, bottom - top, right - left)


def whole(size: Size) -> Region:
    """Return the region that is all of a picture of ``size``."""
    return Region(0, 0, *size)


class Frames(Protocol):
    """The frames of a video at the times that were asked for, before they are RGB."""

    @property
    def size(self) -> Size:
        """Height and width of the video as it is displayed; regions are given in its pixels."""

    @property
    def level(self) -> str:
        """Where the frames come from: SOURCE, or the short side of a copy in the store, such as "160"."""

    def rgb(self, region: Region | None = None) -> FramesArray:
        """Return that part of every frame, by default all of it: uint8 RGB (T, h, w, 3).

        From a copy, (h, w) are the pixels that the copy has there. Call it once, while the video is open.
        Raises VideoError where the file cannot give the frames, or they differ in size.
        """


class Video(Protocol):
    """An open video."""

    @property
    def duration_seconds(self) -> float:
        """Seconds from the first frame to the end of the last, as the header says; else by reading the file."""

    def frames_at(self, times_seconds: Times, short_side: float | None = None) -> Frames:
        """Return the frames on display at the given times.

        Times count from the start of the video stream, in any order; they may repeat. The frame on display
        is the last one whose timestamp is not later than the time. Before the first frame it is the first,
        past the end the last: a clip longer than the video repeats its last frame.
        A picture is turned as the file asks players to turn it, to the nearest quarter turn. (A matrix that also
        mirrors or scales is read for its turn alone.)

        ``short_side``: a copy with so many pixels on its short side is sharp enough; None: no copy will do.
        Raises VideoError where the file cannot give the frames.
        """


Opener = Callable[[str], AbstractContextManager[Video]]
"""Opens the video at a path, and closes it on leaving the context; raises VideoError where it does not open."""


@dataclass(frozen=True)
class Decoder:
    """One of the decoders: ``name`` with versions, for people, and ``opener``, which travels to workers."""

    name: str
    opener: Opener


def choose_decoder(backend: Backend) -> Decoder:
    """Return the decoder that DATA.DECODING_BACKEND asks for; auto: torchcodec where it works, else PyAV.

    Raises InputError where torchcodec is asked for and does not work here.
    """
    # A decoder is imported when it is chosen, since torchcodec may be absent.
    if backend != "pyav":
        from mgexp.video import torchcodec_reader

        fault = torchcodec_reader.fault()
        if not fault:
            return Decoder(torchcodec_reader.version(), torchcodec_reader.TorchcodecReader)
        if backend == "torchcodec":
            problem = f"DATA.DECODING_BACKEND = torchcodec, but it does not work here: {fault}"
            remedy = (
                "Install it with pip install 'mgexp[torchcodec]' and FFmpeg's shared libraries with "
                "apt-get install ffmpeg (or conda install -c conda-forge ffmpeg), "
                "or set DATA.DECODING_BACKEND auto or pyav"
            )
            raise InputError([f"{problem}. {remedy}"])
    import av

    from mgexp.video.pyav import PyavReader

    return Decoder(f"PyAV {av.__version__}", PyavReader)
