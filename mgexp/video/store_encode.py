"""Put one video into a store: decode it once, and encode it at every level with the same times."""

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
from mgexp.video.frame_folder import FrameFolder, resized
from mgexp.video.pyav import PyavReader, all_frames, as_video_error, stream_clock
from mgexp.video.reader import DEFAULT_FRAMES_FPS, Size, VideoError
from mgexp.video.rgb import displayed_size, quarter_turns
from mgexp.video.store import Copy, Stamp, StoreDir, StoredVideo, distinct_levels, level_size

CODEC = "mpeg2video"
"""MPEG-2, because it decodes fast. Measured against x264 (every frame a keyframe, tune fastdecode), eight videos
of 340 x 256 pixels: files of the same size and PSNR take half as long to decode."""
MAX_QUANTIZER = 31
"""The largest quantizer of MPEG-2, with the worst pictures; 1 is the best."""
DEFAULT_QUANTIZER = 6
"""This gives a PSNR of 40 dB, measured with eight videos of 340 x 256 pixels."""
ENCODER_RATE = Fraction(30)
"""Frames per second for the encoder, because MPEG-2 knows only a few rates. The mp4 file holds the true times."""


FrameAt = tuple[Any, int]
"""A decoded frame, and the tick from which on it is on display."""
Write = Callable[[Any, int, int], None]
"""Encodes a decoded frame into a copy. It is on display from the first tick up to the second one."""


def encode_video(
    source: Path, path: str, stamp: Stamp, store: StoreDir, levels: tuple[int, ...], quantizer: int
) -> StoredVideo:
    """Write the copies of ``source``, the video at ``path`` in its root; each file appears whole or not at all.

    A variable frame rate and the unit of time stay. Raises VideoError if the video cannot be decoded to its end.
    """
    decoded = _decode_folder if source.is_dir() else _decode_file
    with decoded(str(source)) as (frames, tick_seconds, duration), ExitStack() as stack:
        shots = _shots(str(source), frames, round(duration / tick_seconds))
        # The first frame is decoded before the copies are opened, because only it tells the size and the turn.
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
    size = (height, width)
    is_folder = source.is_dir()
    return StoredVideo(*(path, stamp, num_frames, duration, *size, copies), is_folder=is_folder)


@contextmanager
def _decode_file(path: str) -> Iterator[tuple[Iterator[FrameAt], Fraction, float]]:
    """Give the frames of a video file, the seconds of a tick, and the duration in seconds."""
    with PyavReader(path) as reader:
        duration = reader.duration_seconds
    with all_frames(path, "cannot be copied") as (stream, decoded):
        # An mp4 file counts time in ticks of 1/n second. If the time base is m/n, its unit has m ticks.
        base, (first_pts, _) = stream.time_base, stream_clock(stream)
        frames = (
            (frame, max(0, int(frame.pts - first_pts) * base.numerator))
            for frame in decoded
            if frame.pts is not None
        )
        yield frames, Fraction(1, base.denominator), duration


@contextmanager
def _decode_folder(path: str) -> Iterator[tuple[Iterator[FrameAt], Fraction, float]]:
    """Give the frames of a folder of images, all of the size of the first, with one tick for each."""
    folder = FrameFolder(path)
    size = folder.image(0).shape[:2]

    def frames() -> Iterator[FrameAt]:
        for place in range(len(folder.images)):
            picture = folder.image(place)
            same = picture if picture.shape[:2] == size else resized(picture, size)
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(same), format="rgb24")
            yield frame, place

    with as_video_error(path, "cannot be copied"):
        yield frames(), 1 / Fraction(DEFAULT_FRAMES_FPS), folder.duration_seconds


def _shots(path: str, frames: Iterable[FrameAt], end: int) -> Iterator[tuple[Any, int, int]]:
    """Yield each frame with its first tick on display, and the tick at which the next frame replaces it.

    ``end``: the tick at which the video ends. Of several frames before the start, or with one timestamp, only the
    last is displayed. The first frame is shown from the start, as ``Video.frames_at`` shows it. Raises VideoError
    if timestamps go back.
    """
    shown, since = None, 0
    for frame, start in frames:
        if shown is not None and start < since:
            raise VideoError(path, "has timestamps that go back")
        if shown is not None and start > since:
            yield shown, since, start
            since = start
        shown = frame
    if shown is None:
        raise VideoError(path, "has no frame with a timestamp that can be decoded")
    # The header may end the video before its last frame. That frame is then shown for one tick.
    yield shown, since, max(end, since + 1)


@contextmanager
def _open_copy(
    path: Path, size: Size, turns: int, first: Any, tick_seconds: Fraction, quantizer: int
) -> Iterator[Write]:
    """Open the copy at ``path``, and give the function that encodes a frame into it.

    The file appears when the copy is complete. ``size``: height and width of the copy; ``turns``: counterclockwise
    quarter turns of its frames; ``first``: a frame of the video, which tells its colours.
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
        # Videos are encoded in as many processes as there are cores.
        context.thread_count = 1
        # These fields say which colours the numbers of a pixel mean. Without them a reader guesses, and shows
        # other colours than the source. The range is always the narrow one, because MPEG-2 has no other.
        context.colorspace = first.colorspace
        context.color_primaries = first.color_primaries
        context.color_trc = first.color_trc
        scaler, on_display = VideoReformatter(), list[tuple[int, int]]()
        height, width = size if turns % 2 == 0 else size[::-1]

        def mux(packets: Iterable[Any]) -> None:
            for packet in packets:
                start, end = on_display[packet.pts]
                # Every frame is a keyframe, so frames are decoded in the order of display, and both times are
                # one.
                packet.pts = packet.dts = start
                packet.time_base = tick_seconds
                # Nothing else tells how long the last frame is displayed.
                packet.duration = end - start
                container.mux(packet)

        def write(frame: Any, start: int, end: int) -> None:
            scaled: Any = scaler.reformat(
                *(frame, width, height, "yuv420p"),
                interpolation="BICUBIC",
                dst_color_range="MPEG",
                threads=1,
            )
            turned = _turned(scaled, turns) if turns else scaled
            # The encoder gets the numbers of the frames as times, and ``mux`` puts the true times back.
            turned.pts, turned.time_base = len(on_display), 1 / ENCODER_RATE
            # With 0 the encoder chooses the type of the picture. A decoded frame has the type of its source.
            turned.pict_type = 0
            on_display.append((start, end))
            mux(stream.encode(turned))

        yield write
        # None brings out the packets that the encoder holds back.
        mux(stream.encode(None))


def _turned(frame: Any, turns: int) -> Any:
    """Turn a yuv420p frame counterclockwise by ``turns`` times 90 degrees."""
    height, width = frame.height, frame.width
    planes = frame.to_ndarray()
    luma, chroma = planes[:height], planes[height:].reshape(2, height // 2, width // 2)
    turned = np.rot90(luma, turns)
    colours = np.rot90(chroma, turns, axes=(1, 2)).reshape(-1, turned.shape[1])
    return av.VideoFrame.from_ndarray(np.concatenate([turned, colours]), format="yuv420p")
