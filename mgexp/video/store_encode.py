"""Puts one video into a store: decoded once, encoded at every level, each frame on its own and at its own time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
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
"""MPEG-2, because it decodes fast. Measured against x264 (every frame a keyframe, tune fastdecode), eight videos
of 340 x 256 pixels: files of the same size and PSNR take half as long to decode."""
MAX_QUANTIZER = 31
"""The quantizer of MPEG-2 goes from 1 (best) to this."""
DEFAULT_SHORT_SIDES = (320, 224, 160)
"""For crops of 224, 158 and 112 pixels: the largest, and what the smaller two need half of the time."""
DEFAULT_QUANTIZER = 6
"""Measured, eight videos of 340 x 256 pixels: a PSNR of 40 dB."""
ENCODER_RATE = Fraction(30)
"""Frames per second that the encoder is told, since MPEG-2 knows few; the file holds the true times."""


Write = Callable[[Any, int, int], None]
"""Encodes a decoded frame that is on display from a first to a last tick of the copy."""


def encode_video(
    source: Path, path: str, stamp: Stamp, store: StoreDir, levels: tuple[int, ...], quantizer: int
) -> StoredVideo:
    """Write the copies of ``source``, the video at ``path`` in its root; each file appears whole or not at all.

    Every frame that is displayed at some time is in each copy, at the same time from the start: a variable frame
    rate and the unit of time stay. Raises VideoError where the video cannot be decoded to its end.
    """
    with PyavReader(str(source)) as reader:
        duration = reader.duration_seconds
    with all_packets(str(source), "cannot be copied") as (stream, packets), ExitStack() as stack:
        # An mp4 file counts in 1/n of a second: a time base of m/n counts m ticks of it.
        base, (first_pts, _) = stream.time_base, stream_clock(stream)
        tick_seconds = Fraction(1, base.denominator)
        frames = (frame for packet in packets for frame in packet.decode())
        timed = (
            (frame, max(0, int(frame.pts - first_pts) * base.numerator))
            for frame in frames
            if frame.pts is not None
        )
        shots = _shots(str(source), timed, round(duration / tick_seconds))
        # The first frame is decoded before the files are opened: only it tells the size and the turn.
        first = next(shots)
        frame, _, _ = first
        turns = quarter_turns(frame.rotation) % 4
        height, width = displayed_size(frame)
        decoded_size = (frame.height, frame.width)
        writes: dict[int, Write] = {}
        for level in distinct_levels(height, width, levels):
            file, size = store.copy(level, path), level_size(height, width, level)
            opened = _open_copy(file, size, turns, frame, tick_seconds, quantizer)
            writes[level] = stack.enter_context(opened)
        num_frames = 0
        for frame, start, end in chain([first], shots):
            if (frame.height, frame.width) != decoded_size:
                size = (frame.height, frame.width)
                raise VideoError(str(source), f"changes shape: {decoded_size}, then {size}")
            for write in writes.values():
                write(frame, start, end)
            num_frames += 1
    copies = {
        level: Copy(*level_size(height, width, level), store.copy(level, path).stat().st_size)
        for level in writes
    }
    return StoredVideo(path, stamp, num_frames, duration, height, width, turns, copies)


def _shots(path: str, timed: Iterable[tuple[Any, int]], end: int) -> Iterator[tuple[Any, int, int]]:
    """Yield each frame with the ticks from which and to which it is on display, as ``Video.frames_at`` has it.

    ``timed``: (frame, its tick); ``end``: the tick at which the video ends. Frames that are never on display are
    left out: those before the start but the last of them, and all but the last with one timestamp. The first frame
    is shown from the start. Raises VideoError where timestamps go back.
    """
    shown, since = None, 0
    for frame, start in timed:
        if shown is not None and start < since:
            raise VideoError(path, "has timestamps that go back")
        if shown is not None and start > since:
            yield shown, since, start
            since = start
        shown = frame
    if shown is None:
        raise VideoError(path, "has no frame with a timestamp that can be decoded")
    yield shown, since, max(end, since + 1)


@contextmanager
def _open_copy(
    path: Path, size: Size, turns: int, first: Any, tick_seconds: Fraction, quantizer: int
) -> Iterator[Write]:
    """Give the function that encodes a frame into the copy at ``path``, which appears when all is written.

    ``size``: height and width of the copy; ``turns``: counterclockwise quarter turns of its frames; ``first``: a
    frame of the video, which tells its colours.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    clock = {"video_track_timescale": str(tick_seconds.denominator)}
    with atomic_file(path) as file, av.open(file, "w", format="mp4", options=clock) as container:
        # g=1: every frame is a keyframe. With one number for least and most, all frames have this quantizer.
        options = {"g": "1", "qmin": str(quantizer), "qmax": str(quantizer)}
        stream: Any = container.add_stream(CODEC, rate=ENCODER_RATE, options=options)
        stream.height, stream.width = size
        stream.pix_fmt = "yuv420p"
        context = stream.codec_context
        context.thread_count = 1
        # These tell what the numbers of a pixel mean: without them a reader guesses, and shows other colours than
        # the source's. The range is always the narrow one: MPEG-2 has no other.
        context.colorspace = first.colorspace
        context.color_primaries = first.color_primaries
        context.color_trc = first.color_trc
        scaler, on_display = VideoReformatter(), list[tuple[int, int]]()
        height, width = size if turns % 2 == 0 else size[::-1]

        def mux(packets: Iterable[Any]) -> None:
            for packet in packets:
                start, end = on_display[packet.pts]
                packet.pts = packet.dts = start
                packet.time_base = tick_seconds
                packet.duration = (
                    end - start
                )  # only this tells how long the last frame is displayed
                container.mux(packet)

        def write(frame: Any, start: int, end: int) -> None:
            scaled: Any = scaler.reformat(
                *(frame, width, height, "yuv420p"),
                interpolation="BICUBIC",
                dst_color_range="MPEG",
                threads=1,
            )
            turned = _turned(scaled, turns) if turns else scaled
            # The encoder counts frames, since it knows few rates; mux gives the packets their true times.
            turned.pts, turned.time_base = len(on_display), 1 / ENCODER_RATE
            turned.pict_type = 0  # the encoder decides, not the source
            on_display.append((start, end))
            mux(stream.encode(turned))

        yield write
        mux(stream.encode(None))  # what the encoder holds back


def _turned(frame: Any, turns: int) -> Any:
    """Turn a yuv420p frame counterclockwise by ``turns`` times 90 degrees."""
    height, width = frame.height, frame.width
    planes = frame.to_ndarray()
    luma, chroma = planes[:height], planes[height:].reshape(2, height // 2, width // 2)
    turned = np.rot90(luma, turns)
    colours = np.rot90(chroma, turns, axes=(1, 2)).reshape(-1, turned.shape[1])
    return av.VideoFrame.from_ndarray(np.concatenate([turned, colours]), format="yuv420p")
