"""Puts one video into a store: decoded once, encoded at every level, each frame on its own and at its own time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from mgexp.run.files import atomic_file
from mgexp.video.pyav import PyavReader, all_packets, stream_clock
from mgexp.video.reader import Size, VideoError
from mgexp.video.rgb import displayed_size, quarter_turns
from mgexp.video.store import Copy, Stamp, StoreDir, StoredVideo, distinct_levels, level_size

# ruff: noqa: ANN401 (the objects of PyAV are untyped here)

CODEC = "mpeg2video"
MAX_QUANTIZER = 31
DEFAULT_SHORT_SIDES = (320, 224, 160)
"""For crops of 224, 158 and 112 pixels: the largest, and what the smaller two need half of the time."""
DEFAULT_QUANTIZER = 6
"""Measured, eight videos of 340 x 256 pixels: a PSNR of 40 dB."""
ENCODER_RATE = Fraction(30)
"""Frames per second that the encoder is told, since MPEG-2 knows few; the file holds the true times."""


@dataclass(frozen=True)
class Coding:
    """How copies are encoded: ``quantizer`` of MPEG-2, 1 (best) to MAX_QUANTIZER.

    It is MPEG-2 because that decodes fast. Measured against x264 (every frame a keyframe, tune fastdecode), eight
    videos of 340 x 256 pixels: files of the same size and PSNR take half as long to decode.
    """

    quantizer: int

    def options(self) -> dict[str, str]:
        """Return the options of mpeg2video: every frame is a keyframe, and all have one quantizer."""
        quantizer = str(self.quantizer)
        return {"g": "1", "qmin": quantizer, "qmax": quantizer}


@dataclass(frozen=True)
class Shot:
    """A decoded frame that is on display from ``start`` to ``end``, in ticks of the copy."""

    frame: Any
    start: int
    end: int


@dataclass(frozen=True)
class _Clock:
    """Ticks of the copy, of ``tick_seconds``, from timestamps of the source."""

    start: int
    factor: int
    tick_seconds: Fraction

    def ticks(self, pts: int) -> int:
        return int(pts - self.start) * self.factor


def encode_video(
    source: Path, path: str, stamp: Stamp, store: StoreDir, levels: tuple[int, ...], coding: Coding
) -> StoredVideo:
    """Write the copies of ``source``, the video at ``path`` in its root; each file appears whole or not at all.

    Every frame that is displayed at some time is in each copy, at the same time from the start: a variable frame
    rate and the unit of time stay. Raises VideoError where the video cannot be decoded to its end.
    """
    with PyavReader(str(source)) as reader:
        duration = reader.duration_seconds
    with all_packets(str(source), "cannot be copied") as (stream, packets), ExitStack() as stack:
        # An mp4 file counts in 1/n of a second: a time base of m/n counts m ticks of it.
        base = stream.time_base
        clock = _Clock(stream_clock(stream)[0], base.numerator, Fraction(1, base.denominator))
        end = round(duration / clock.tick_seconds)
        frames = (frame for packet in packets for frame in packet.decode())
        shots = _shots(str(source), frames, clock, end)
        first = next(shots)
        turns = quarter_turns(first.frame.rotation) % 4
        height, width = displayed_size(first.frame)
        writers = {}
        for level in distinct_levels(height, width, levels):
            file, size = store.copy(level, path), level_size(height, width, level)
            opened = _writer(file, size, turns, first.frame, clock.tick_seconds, coding)
            writers[level] = stack.enter_context(opened)
        decoded_size = (first.frame.height, first.frame.width)
        num_frames = 0
        for shot in chain([first], shots):
            size = (shot.frame.height, shot.frame.width)
            if size != decoded_size:
                raise VideoError(str(source), f"changes shape: {decoded_size}, then {size}")
            for writer in writers.values():
                writer.write(shot)
            num_frames += 1
    copies = {
        level: Copy(*writer.size, store.copy(level, path).stat().st_size)
        for level, writer in writers.items()
    }
    return StoredVideo(path, stamp, num_frames, duration, height, width, turns, copies)


def _shots(path: str, frames: Iterable[Any], clock: _Clock, end: int) -> Iterator[Shot]:
    """Yield each frame with the time for which it is on display, by the rule of ``Video.frames_at``.

    Frames that are never on display are left out: those before the start but the last of them, and all but the
    last with one timestamp. The first frame is shown from the start. Raises VideoError where timestamps go back.
    """
    shown, since = None, 0
    for frame in (frame for frame in frames if frame.pts is not None):
        start = max(0, clock.ticks(frame.pts))
        if shown is not None and start < since:
            raise VideoError(path, "has timestamps that go back")
        if shown is not None and start > since:
            yield Shot(shown, since, start)
            since = start
        shown = frame
    if shown is None:
        raise VideoError(path, "has no frame with a timestamp that can be decoded")
    yield Shot(shown, since, max(end, since + 1))


@contextmanager
def _writer(
    path: Path, size: Size, turns: int, frame: Any, tick_seconds: Fraction, coding: Coding
) -> Iterator[_Writer]:
    """Open the file of a copy, which appears at ``path`` when all is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {"video_track_timescale": str(tick_seconds.denominator)}
    with (
        atomic_file(path) as file,
        av.open(file, "w", format="mp4", options=options) as container,
    ):
        writer = _Writer(container, size, turns, frame, tick_seconds, coding)
        yield writer
        writer.finish()


class _Writer:
    """One copy that is being written; ``size`` is its (height, width), ``frame`` one of the video."""

    def __init__(
        self,
        container: Any,
        size: Size,
        turns: int,
        frame: Any,
        tick_seconds: Fraction,
        coding: Coding,
    ) -> None:
        self.size = size
        self._turns = turns
        self._tick_seconds = tick_seconds
        self._shots: list[tuple[int, int]] = []
        self._scaler = VideoReformatter()
        self._container = container
        self._stream = container.add_stream(CODEC, rate=ENCODER_RATE, options=coding.options())
        self._stream.height, self._stream.width = size
        self._stream.pix_fmt = "yuv420p"
        context = self._stream.codec_context
        context.thread_count = 1
        # These tell what the numbers of a pixel mean: without them a reader guesses, and shows other colours than
        # the source's. The range is always the narrow one: MPEG-2 has no other.
        context.colorspace = frame.colorspace
        context.color_primaries = frame.color_primaries
        context.color_trc = frame.color_trc

    def write(self, shot: Shot) -> None:
        """Encode a frame at the size of the copy."""
        height, width = self.size if self._turns % 2 == 0 else self.size[::-1]
        frame = self._scaler.reformat(
            shot.frame,
            width,
            height,
            "yuv420p",
            interpolation="BICUBIC",
            dst_color_range="MPEG",
            threads=1,
        )
        if self._turns:
            frame = _turned(frame, self._turns)
        frame.pts, frame.time_base = len(self._shots), 1 / ENCODER_RATE
        frame.pict_type = 0  # the encoder decides, not the source
        self._shots.append((shot.start, shot.end))
        self._mux(self._stream.encode(frame))

    def finish(self) -> None:
        """Write what the encoder holds back."""
        self._mux(self._stream.encode(None))

    def _mux(self, packets: Iterable[Any]) -> None:
        for packet in packets:
            start, end = self._shots[packet.pts]
            packet.pts = packet.dts = start
            packet.time_base = self._tick_seconds
            # Only this tells how long the last frame is displayed.
            packet.duration = end - start
            self._container.mux(packet)


def _turned(frame: Any, turns: int) -> Any:
    """Turn a yuv420p frame counterclockwise by ``turns`` times 90 degrees."""
    height, width = frame.height, frame.width
    planes = frame.to_ndarray()
    luma, chroma = planes[:height], planes[height:].reshape(2, height // 2, width // 2)
    turned = np.rot90(luma, turns)
    colours = np.rot90(chroma, turns, axes=(1, 2)).reshape(-1, turned.shape[1])
    return av.VideoFrame.from_ndarray(np.concatenate([turned, colours]), format="yuv420p")
