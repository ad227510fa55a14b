"""What a video decoder gives, what it raises, and which of the two is used.

PyAV is always there: its wheels contain FFmpeg. torchcodec is optional and needs FFmpeg's shared libraries.
Both give the same frames for the same times. The modules that import them are imported on use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mgexp.data.region import RegionOf, whole
from mgexp.errors import InputError

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
    from mgexp.data.decode_pyav import open_pyav

    return open_pyav(path)


def choose_decoder(backend: Backend) -> Decoder:
    """The decoder that DATA.DECODING_BACKEND asks for; auto: torchcodec where it works, else PyAV.

    Raises InputError where torchcodec is asked for and does not work here.
    """
    if backend != "pyav":
        from mgexp.data import decode_torchcodec

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
