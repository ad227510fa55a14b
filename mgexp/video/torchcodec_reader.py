"""Read the frames of a video file at given times with torchcodec, in one thread.

As with PyAV, the packets around the wanted times tell which frames are wanted. So the two decoders
agree on the frames, and on the duration of a file. torchcodec gets these packets as its index. With
this index, torchcodec neither scans the whole file (its exact mode) nor guesses by the frame rate
(its approximate mode). Each frame that comes back is checked by its timestamp. PyAV decodes what
torchcodec cannot decode, and every AVI file.

Only damaged pictures may differ. One version of FFmpeg conceals the damage, and another refuses the
picture or conceals the damage differently. So torchcodec may give such a picture where PyAV gives
another one or a VideoError.
"""

from __future__ import annotations

import io
import json
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

import av
import numpy as np

from mgexp.video.pyav import AV_ERRORS, PyavReader, rows_by_pts, ticks_of
from mgexp.video.reader import SOURCE, Frames, FramesArray, Region, Size, Times

MIN_VERSION = (0, 12)
"""torchcodec turns pictures as the file says since 0.11 (its pull request 1173); tested from 0.12 on."""

_ERRORS = (RuntimeError, ValueError, IndexError, AssertionError)
"""What torchcodec raises for a file that it cannot read."""


class TorchcodecReader(PyavReader):
    """An open video file. ``PyavReader`` reads its packets, and decodes if torchcodec's result is uncertain."""

    def frames_at(self, times_seconds: Times, short_side: float | None = None) -> Frames:
        """Decode the frames on display at these times; use PyAV if torchcodec may not give the right ones."""
        # AVI holds no display times. Each release of FFmpeg makes up its own, and PyAV notices
        # where they fail.
        if self._container.format.name != "avi":
            with suppress(*AV_ERRORS, *_ERRORS):
                times = [float(time) for time in times_seconds]
                pixels = self._decode_by_index(ticks_of(times, self._start, self._ticks_per_second))
                if pixels is not None:
                    return _RgbFrames(pixels)
        return super().frames_at(times_seconds)

    def _decode_by_index(self, ticks: Sequence[int]) -> FramesArray | None:
        """Return the frames at ``ticks``; None if they are uncertain, or if torchcodec gave other frames."""
        packets = self._packets_between(min(ticks), max(ticks))
        rows = rows_by_pts(packets, ticks)
        if rows is None:
            return None
        wanted = np.empty(len(ticks), np.int64)
        for time, places in rows.items():
            wanted[places] = time
        # torchcodec counts frames in the order of display, so the index has them in this order.
        displayed = sorted((p for p in packets if not p.is_discard), key=lambda p: p.pts)
        index = [
            {"pts": p.pts, "duration": p.duration or 0, "key_frame": int(p.is_keyframe)}
            for p in displayed
        ]
        decoder = _decoder(
            self.path,
            stream_index=self._stream.index,
            custom_frame_mappings=json.dumps({"frames": index}),
        )
        pts = [packet.pts for packet in displayed]
        batch = decoder.get_frames_at([bisect_left(pts, time) for time in wanted])
        # torchcodec gives timestamps in seconds, as floats. Rounded to ticks, they must equal the
        # wanted ones.
        times = np.rint(batch.pts_seconds.numpy() * self._ticks_per_second)
        return batch.data.numpy() if np.array_equal(times, wanted) else None


@dataclass(frozen=True)
class _RgbFrames:
    """Frames that torchcodec has decoded and turned: uint8 RGB (T, H, W, 3)."""

    pixels: FramesArray
    level: str = SOURCE

    @property
    def size(self) -> Size:
        """Height and width of the video as it is displayed."""
        return self.pixels.shape[1], self.pixels.shape[2]

    def rgb(self, region: Region | None = None) -> FramesArray:
        """Cut the region out of every frame."""
        return self.pixels if region is None else self.pixels[:, region.rows, region.columns]


def version() -> str:
    """Name the versions of torchcodec and of the FFmpeg that it found, for people."""
    import torchcodec

    ffmpeg = getattr(torchcodec, "ffmpeg_major_version", "?")
    return f"torchcodec {metadata.version('torchcodec')} with FFmpeg {ffmpeg}"


@cache
def fault() -> str:
    """Say in one line why torchcodec cannot be used here; return "" if it can.

    torchcodec can be imported without FFmpeg, or with an FFmpeg that lacks H.264, but then it fails
    on every file. So this decodes a small H.264 file.
    """
    try:
        found = metadata.version("torchcodec")
        if tuple(int(part) for part in found.split(".")[:2]) < MIN_VERSION:
            return f"torchcodec {found} is older than {'.'.join(map(str, MIN_VERSION))}"
        _decoder(_sample_h264()).get_frames_at([0])
    except metadata.PackageNotFoundError:
        return "it is not installed"
    except (ImportError, OSError, *_ERRORS) as error:
        return " ".join(str(error).split())[:300]
    return ""


def _decoder(source: str | bytes, **options: Any) -> Any:  # noqa: ANN401
    """Make a decoder of one thread, since loaders run a process for each core."""
    from torchcodec.decoders import VideoDecoder

    return VideoDecoder(
        source, dimension_order="NHWC", num_ffmpeg_threads=1, device="cpu", **options
    )


def _sample_h264() -> bytes:
    """Encode an mp4 file of one H.264 frame."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
        container.mux([*stream.encode(frame), *stream.encode()])
    return file.getvalue()
