"""One video into a store: decoded once, encoded at every level, each frame on its own and at its own time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from mgexp.run.files import atomic_file
from mgexp.video.pyav import all_packets, stream_clock
from mgexp.video.reader import VideoError, open_video
from mgexp.video.rgb import quarter_turns
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

    MPEG-2 since it decodes fast. Measured against x264 (every frame a keyframe, tune fastdecode), eight videos of
    340 x 256 pixels: files of the same size and PSNR take half as long to decode.
    """

    quantizer: int

    def options(self) -> dict[str, str]:
        """Of mpeg2video: every frame is a keyframe, all with one quantizer."""
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
    """Writes the copies of ``source``, the video at ``path`` in its root; each file appears whole or not at all.

    Every frame that is displayed at some time is in each copy, at the same time from the start: a variable frame
    rate and the unit of time stay. Raises VideoError where the video cannot be decoded to its end.
    """
    with open_video(str(source)) as reader:
        duration = reader.duration_seconds
    with all_packets(str(source), "cannot be copied") as (stream, packets), ExitStack() as stack:
        clock = _clock_of(stream)
        end = round(duration / clock.tick_seconds)
        frames = (frame for packet in packets for frame in packet.decode())
        shots = _shots(str(source), frames, clock, end)
        first = next(shots)
        turns = quarter_turns(first.frame.rotation) % 4
        height, width = _displayed_size(first.frame, turns)
        writers = {
            level: stack.enter_context(
                _writer(
                    store.copy(level, path),
                    level_size(height, width, level),
                    turns,
                    first,
                    clock,
                    coding,
                )
            )
            for level in distinct_levels(height, width, levels)
        }
        num_frames = _write_all(str(source), first, shots, writers)
    return StoredVideo(
        path, stamp, num_frames, duration, height, width, turns, _copies(store, path, writers)
    )


def _write_all(
    path: str, first: Shot, others: Iterable[Shot], writers: Mapping[int, _Writer]
) -> int:
    size = (first.frame.height, first.frame.width)
    num_frames = 0
    for shot in chain([first], others):
        if (shot.frame.height, shot.frame.width) != size:
            raise VideoError(
                path, f"changes shape: {size}, then {shot.frame.height, shot.frame.width}"
            )
        for writer in writers.values():
            writer.write(shot)
        num_frames += 1
    return num_frames


def _copies(store: StoreDir, path: str, writers: Mapping[int, _Writer]) -> dict[int, Copy]:
    return {
        level: Copy(*writer.size, store.copy(level, path).stat().st_size)
        for level, writer in writers.items()
    }


def _clock_of(stream: Any) -> _Clock:
    """An mp4 file counts in 1/n of a second: a time base of m/n counts m ticks of it."""
    start, _ = stream_clock(stream)
    base = stream.time_base
    return _Clock(start, base.numerator, Fraction(1, base.denominator))


def _shots(path: str, frames: Iterable[Any], clock: _Clock, end: int) -> Iterator[Shot]:
    """Each frame with the time for which it is on display, by the rule of ``VideoReader.frames_at``.

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


def _displayed_size(frame: Any, turns: int) -> tuple[int, int]:
    return (frame.width, frame.height) if turns % 2 else (frame.height, frame.width)


class _Writer:
    """One copy that is being written; ``size`` is its (height, width)."""

    def __init__(
        self,
        container: Any,
        size: tuple[int, int],
        turns: int,
        first: Shot,
        clock: _Clock,
        coding: Coding,
    ) -> None:
        self.size = size
        self._turns = turns
        self._tick_seconds = clock.tick_seconds
        self._shots: list[tuple[int, int]] = []
        self._scaler = VideoReformatter()
        self._container = container
        self._stream = container.add_stream(CODEC, rate=ENCODER_RATE, options=coding.options())
        self._stream.height, self._stream.width = size
        self._stream.pix_fmt = "yuv420p"
        context = self._stream.codec_context
        context.thread_count = 1
        _copy_colours(first.frame, context)

    def write(self, shot: Shot) -> None:
        frame = self._fitted(shot.frame)
        frame.pts, frame.time_base = len(self._shots), 1 / ENCODER_RATE
        frame.pict_type = 0  # the encoder decides, not the source
        self._shots.append((shot.start, shot.end))
        self._mux(self._stream.encode(frame))

    def finish(self) -> None:
        self._mux(self._stream.encode(None))

    def _mux(self, packets: Iterable[Any]) -> None:
        for packet in packets:
            start, end = self._shots[packet.pts]
            packet.pts = packet.dts = start
            packet.time_base = self._tick_seconds
            # Of the last frame, the file does not know otherwise how long it is displayed.
            packet.duration = end - start
            self._container.mux(packet)

    def _fitted(self, frame: Any) -> Any:
        height, width = self.size if self._turns % 2 == 0 else self.size[::-1]
        scaled = self._scaler.reformat(
            frame,
            width,
            height,
            "yuv420p",
            interpolation="BICUBIC",
            dst_color_range="MPEG",
            threads=1,
        )
        return _turned(scaled, self._turns) if self._turns else scaled


@contextmanager
def _writer(
    path: Path, size: tuple[int, int], turns: int, first: Shot, clock: _Clock, coding: Coding
) -> Iterator[_Writer]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file, _mp4(file, clock.tick_seconds) as container:
        writer = _Writer(container, size, turns, first, clock, coding)
        yield writer
        writer.finish()


@contextmanager
def _mp4(file: BinaryIO, tick_seconds: Fraction) -> Iterator[Any]:
    options = {"video_track_timescale": str(tick_seconds.denominator)}
    with av.open(file, "w", format="mp4", options=options) as container:
        yield container


def _copy_colours(frame: Any, context: Any) -> None:
    """What the numbers of a pixel mean: without it a reader guesses, and shows other colours than the source's.

    The range is always the narrow one: MPEG-2 has no other.
    """
    context.colorspace = frame.colorspace
    context.color_primaries = frame.color_primaries
    context.color_trc = frame.color_trc


def _turned(frame: Any, turns: int) -> Any:
    """A yuv420p frame turned counterclockwise by ``turns`` times 90 degrees."""
    height, width = frame.height, frame.width
    planes = frame.to_ndarray()
    luma, chroma = planes[:height], planes[height:].reshape(2, height // 2, width // 2)
    turned = np.rot90(luma, turns)
    colours = np.rot90(chroma, turns, axes=(1, 2)).reshape(-1, turned.shape[1])
    return av.VideoFrame.from_ndarray(np.concatenate([turned, colours]), format="yuv420p")
