"""Frames of a video file at given times, decoded by torchcodec, one thread.

Which frames those are is found as for PyAV, by the packets around the wanted times: the two decoders cannot
disagree, nor about how long a file is. torchcodec gets these packets as its index, so that it neither scans
the whole file (its exact mode) nor guesses by the frame rate (its approximate mode). Each frame that comes
back is checked by its timestamp. What torchcodec cannot decode, and every AVI file, is decoded by PyAV.

The one difference left is in damaged pictures, which one FFmpeg conceals and another refuses or conceals
differently: where torchcodec gives such a picture, PyAV may give another one or a VideoError.
"""

from __future__ import annotations

import io
import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from mgexp.video.pyav import PyavReader, opened, rows_by_pts
from mgexp.video.region import RegionOf

MIN_VERSION = (0, 12)
"""torchcodec turns pictures as the file says since 0.11 (its pull request 1173); tested from 0.12 on."""

_ERRORS = (RuntimeError, ValueError, IndexError, AssertionError)
"""What torchcodec raises for a file that it cannot read."""


class TorchcodecReader(PyavReader):
    """An open video file; see ``mgexp.video.reader.VideoReader``."""

    def _decode_wanted(self, ticks: Sequence[int], region_of: RegionOf) -> NDArray[np.uint8] | None:
        """The frames at ``ticks``; None where that is uncertain."""
        # AVI holds no display times: each release of FFmpeg makes up its own, and PyAV sees where they fail.
        if self._container.format.name != "avi":
            packets = self._packets_between(min(ticks), max(ticks))
            rows = rows_by_pts(packets, ticks)
            if rows is None:
                return None
            with suppress(*_ERRORS):
                frames = self._decode_by_index(packets, _per_row(rows, len(ticks)))
                if frames is not None:
                    part = region_of((frames.shape[1], frames.shape[2]))
                    return frames[:, part.rows, part.columns]
        return super()._decode_wanted(ticks, region_of)

    def _decode_by_index(
        self, packets: Sequence[Any], wanted: NDArray[np.int64]
    ) -> NDArray[np.uint8] | None:
        """The frames with timestamps ``wanted``; None where torchcodec gave others."""
        displayed = sorted((p for p in packets if not p.is_discard), key=lambda p: p.pts)
        decoder = _decoder(
            self.path,
            stream_index=self._stream.index,
            custom_frame_mappings=_mappings(displayed),
        )
        pts = [packet.pts for packet in displayed]
        batch = decoder.get_frames_at([bisect_left(pts, time) for time in wanted])
        times = np.rint(batch.pts_seconds.numpy() * self._ticks_per_second)
        return batch.data.numpy() if np.array_equal(times, wanted) else None


@contextmanager
def open_torchcodec(path: str) -> Iterator[TorchcodecReader]:
    """The reader of a video file, closed on leaving the context. Raises VideoError if it cannot be opened."""
    with opened(path) as container:
        yield TorchcodecReader(path, container)


def version() -> str:
    """Versions of torchcodec and of the FFmpeg that it found, for people."""
    import torchcodec

    ffmpeg = getattr(torchcodec, "ffmpeg_major_version", "?")
    return f"torchcodec {metadata.version('torchcodec')} with FFmpeg {ffmpeg}"


@cache
def fault() -> str:
    """Why torchcodec cannot be used here, in one line; empty where it can.

    It imports without FFmpeg, or with one that lacks H.264, and then fails on every file: so one is decoded.
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


def _per_row(rows: Mapping[int, Sequence[int]], num_rows: int) -> NDArray[np.int64]:
    """The timestamp of each row, from the rows of each timestamp."""
    times = np.empty(num_rows, np.int64)
    for time, places in rows.items():
        times[places] = time
    return times


def _decoder(source: str | bytes, **options: Any) -> Any:  # noqa: ANN401
    """A decoder in one thread: loaders run a process for each core."""
    from torchcodec.decoders import VideoDecoder

    return VideoDecoder(
        source, dimension_order="NHWC", num_ffmpeg_threads=1, device="cpu", **options
    )


def _mappings(packets: Sequence[Any]) -> str:
    """The index that torchcodec takes, in its words."""
    frames = [
        {"pts": packet.pts, "duration": packet.duration or 0, "key_frame": int(packet.is_keyframe)}
        for packet in packets
    ]
    return json.dumps({"frames": frames})


def _sample_h264() -> bytes:
    """An mp4 file of one H.264 frame."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
        container.mux([*stream.encode(frame), *stream.encode()])
    return file.getvalue()
