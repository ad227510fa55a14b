"""Read the frames of a video or a camera in order, and cut clips from a window that slides over them.

A camera and a file are one thing here: what PyAV opens. So what works with a file works with a camera.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from torch import Tensor

from mgexp.config.keys import Config
from mgexp.data.clips import Times, resize, segment_times
from mgexp.data.views import view_region
from mgexp.errors import InputError
from mgexp.video.pyav import as_video_error
from mgexp.video.reader import TOLERANCE_SECONDS, FramesArray, VideoError, whole
from mgexp.video.rgb import RgbConverter, displayed_size, quarter_turns

# ruff: noqa: ANN401 (the objects of PyAV are untyped here)

SPAN_SECONDS = 4.0
"""What a clip of segments shows of a stream by default: the mean length of the videos of Something-Something V2
(Goyal et al., ICCV 2017, table 1)."""

Frame = tuple[float, FramesArray]
"""Seconds since the first frame, and the upright picture, uint8 RGB (H, W, 3)."""
Scores = Callable[[Tensor], Tensor]
"""Turns a clip, uint8 (1, 3, T, S, S), into the probabilities (classes,)."""


@dataclass(frozen=True)
class Source:
    """What PyAV opens: a ``name``, and the ``format`` of a device; None lets FFmpeg find out."""

    name: str
    format: str | None = None


def camera(text: str) -> Source:
    """Return the camera with an index, such as "0", or else what PyAV opens by the name ``text``.

    Raises InputError if there is no such camera.
    """
    if not text.isdigit():
        return Source(text)
    if sys.platform != "linux":
        problem = f"--webcam {text}: cameras are known by their index on Linux only"
        raise InputError([f"{problem}; give the address of a stream, such as rtsp://…"])
    device = Path(f"/dev/video{text}")
    if not device.exists():
        known = ", ".join(sorted(path.name.removeprefix("video") for path in _devices()))
        remedy = f"give one of {known}" if known else "this machine has no camera: plug one in"
        raise InputError([f"--webcam {text}: there is no device {device}; {remedy}"])
    return Source(str(device), "v4l2")


def _devices() -> Iterator[Path]:
    return Path("/dev").glob("video[0-9]*")


@contextmanager
def open_frames(source: Source) -> Iterator[Iterator[Frame]]:
    """Open a source, and give its frames in order. Frames without a time, or whose time goes back, are left out.

    A picture is valid until the next one. Raises VideoError if the source cannot be opened, and at a frame that
    cannot be read. Errors of the block stay as they are.
    """
    with as_video_error(source.name, "cannot be opened"):
        container = av.open(source.name, format=source.format, metadata_errors="replace")
    with container:
        yield _frames(source.name, container)


def _frames(name: str, container: Any) -> Iterator[Frame]:
    to_rgb, first, latest, size = RgbConverter(), None, -1.0, None
    with as_video_error(name, "cannot be read"):
        stream = container.streams.best("video")
        if stream is None or stream.codec_context is None:
            raise VideoError(name, "has no video stream of a codec that is known")
        stream.thread_type = "AUTO"
        for frame in container.decode(stream):
            if frame.time is None:
                continue
            first = frame.time if first is None else first
            seconds = frame.time - first
            if seconds <= latest:
                continue
            shown = displayed_size(frame)
            size = size or shown
            if shown != size:
                raise VideoError(name, f"changes shape: {size}, then {shown}")
            picture = to_rgb(frame, whole((frame.height, frame.width)))
            turns = quarter_turns(frame.rotation)
            yield seconds, np.ascontiguousarray(np.rot90(picture, turns) if turns else picture)
            latest = seconds
    if first is None:
        raise VideoError(name, "has no frame with a timestamp that can be decoded")


@dataclass(frozen=True)
class Window:
    """What a clip of a stream shows: ``steps`` are the seconds of its frames after its start.

    ``crop``: pixels of its side. ``has_segments``: a shorter video is cut into as many segments; otherwise its
    last frame is repeated. ``every_seconds``: the time from the start of a clip to that of the next.
    """

    steps: Times
    crop: int
    has_segments: bool
    every_seconds: float

    @property
    def last_seconds(self) -> float:
        """The time of the last frame after the start of the clip."""
        return float(self.steps[-1])


def build_window(cfg: Config, every_seconds: float, span_seconds: float | None = None) -> Window:
    """Build the window of a run's full shape. Raises InputError if the run does not see frames in their order.

    ``span_seconds``: what a clip of segments shows, by default SPAN_SECONDS. Other clips have a span of their own.
    """
    data = cfg.DATA
    if cfg.TEST.FRAME_ORDER != "forward":
        problem = f"the run sees frames {cfg.TEST.FRAME_ORDER} (TEST.FRAME_ORDER)"
        raise InputError([f"{problem}, and a stream has them forward: give another run"])
    has_segments = data.TEMPORAL_GRID == "segments"
    if span_seconds is not None and not has_segments:
        problem = f"--span {span_seconds:g}: the stride of this run decides what a clip shows"
        raise InputError([f"{problem} (DATA.TEMPORAL_GRID = stride): leave it out"])
    if has_segments:
        steps = segment_times(span_seconds or SPAN_SECONDS, data.NUM_FRAMES)
    else:
        steps = np.arange(data.NUM_FRAMES, dtype=np.float64) * (
            data.SAMPLING_RATE / data.TARGET_FPS
        )
    return Window(steps, data.TRAIN_CROP_SIZE, has_segments, every_seconds)


@dataclass
class SlidingClips:
    """Clips of the centre square of a stream, made while its frames come. Only what a clip needs is kept."""

    window: Window
    _start: float = 0.0
    _num_clips: int = 0
    _times: list[float] = field(default_factory=list)
    _squares: list[Tensor] = field(default_factory=list)

    def add(self, seconds: float, picture: FramesArray) -> tuple[float, Tensor] | None:
        """Take the next frame; return the middle of the clip that it completes, in seconds, and the clip.

        The clip is uint8 (1, 3, T, S, S).
        """
        region = view_region(picture.shape[0], picture.shape[1], 0, 1)
        square = torch.from_numpy(picture[region.rows, region.columns][None])
        # The copy is ours: the picture is valid until the next one only.
        self._squares.append(resize(square, self.window.crop).clone())
        self._times.append(seconds)
        # The frame on display at the start of the clip is still needed.
        num_old = bisect_right(self._times, self._start + TOLERANCE_SECONDS) - 1
        del self._times[: max(0, num_old)], self._squares[: max(0, num_old)]
        if seconds < self._start + self.window.last_seconds - TOLERANCE_SECONDS:
            return None
        found = self._clip(self.window.steps)
        # A camera may skip frames while the network computes. Clips that would be late already are left out.
        every = self.window.every_seconds
        self._start += every * max(1, (seconds - self._start - self.window.last_seconds) // every)
        return found

    def rest(self) -> tuple[float, Tensor] | None:
        """Return the only clip of a stream that ended before its first clip was complete."""
        if self._num_clips or not self._times:
            return None
        if not self.window.has_segments:
            return self._clip(self.window.steps)
        gaps = [after - before for before, after in pairwise(self._times)]
        duration = self._times[-1] + (gaps[-1] if gaps else 0.0)
        return self._clip(segment_times(duration, len(self.window.steps)))

    def _clip(self, steps: Times) -> tuple[float, Tensor]:
        moments = [self._start + float(step) for step in steps]
        places = [bisect_right(self._times, one + TOLERANCE_SECONDS) - 1 for one in moments]
        frames = torch.cat([self._squares[max(0, place)] for place in places])
        self._num_clips += 1
        return (moments[0] + moments[-1]) / 2, frames.permute(3, 0, 1, 2)[None]


@dataclass(frozen=True)
class Timeline:
    """The probabilities (classes,) of the clips of a video, and the moments of their middles, ascending."""

    middles: tuple[float, ...]
    scores: tuple[Tensor, ...]

    def at(self, seconds: float) -> Tensor:
        """Return the probabilities of the clip whose middle is nearest."""
        after = bisect_right(self.middles, seconds)
        near = [place for place in (after - 1, after) if 0 <= place < len(self.middles)]
        return self.scores[min(near, key=lambda place: abs(self.middles[place] - seconds))]


def timeline(frames: Iterable[Frame], window: Window, scores: Scores) -> Timeline:
    """Score the clips of a whole video."""
    clips, found = SlidingClips(window), list[tuple[float, Tensor]]()
    for seconds, picture in frames:
        if made := clips.add(seconds, picture):
            found.append((made[0], scores(made[1])))
    if made := clips.rest():
        found.append((made[0], scores(made[1])))
    middles, values = zip(*found, strict=True)
    return Timeline(middles, values)
