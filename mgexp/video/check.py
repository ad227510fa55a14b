"""Check whether training can use a video file, and say what is wrong with a file that it cannot use."""

from __future__ import annotations

import math
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import av
import numpy as np

from mgexp.video.frame_folder import FrameFolder
from mgexp.video.pyav import AV_ERRORS, header_duration
from mgexp.video.reader import VideoError
from mgexp.video.store import stamp_of

KINDS = {
    "ok": "decodes, nothing strange",
    "timestamps_not_monotonic": "decodes, but frames come out of the order of their times (still usable)",
    "sizes_differ": "a folder of images of several sizes, resized to the first of a clip (still usable)",
    "missing": "there is no such file",
    "empty_file": "the file holds no byte",
    "open_fails": "the format is unknown, or the header is damaged",
    "no_sequence": "a folder without images, or with numbers that have a gap",
    "no_video_stream": "no video stream of a codec that is known",
    "zero_frames": "a video stream without a frame",
    "decode_error_partial": "some frames cannot be decoded",
    "decode_error_no_frame": "no frame can be decoded, or none has a time",
    "changes_size": "the frames have different sizes, so they make no clip",
    "hung": "no result within the time limit",
    "crashed": "the decoder ended its process",
}
"""The kinds of results, in the order of the table, and what each of them means."""
USABLE_KINDS = frozenset({"ok", "timestamps_not_monotonic", "sizes_differ"})
QUICK_SECONDS = 1.0
"""Seconds that a quick check decodes at the start and at the end of a video. Assumption: a file that was cut short
or written badly fails at one of its ends. Only the full check finds damage in the middle."""
LOST_SECONDS = 1.0
"""A file has lost its end if its frames end earlier than its header says by more seconds than this. Assumption:
headers are less wrong."""
MEAN_SIDE, MEAN_EVERY = 8, 10
"""The mean frame is the grey mean of every tenth frame, in 8 × 8 pixels."""


@dataclass(frozen=True)
class VideoCheck:
    """The result for one video: its ``kind`` (see KINDS) and the ``reason`` in words, which is empty if all is ok.

    ``frames``: those that were decoded, or images without damage. ``fps`` and ``duration_seconds``
    come from the header. If the header has no duration, the times of the frames give it. ``width`` and ``height``:
    pixels of the first frame. A value of None is unknown. ``seconds``: how long the check took, 0 if its process
    died. ``mean_frame``: the grey values of the mean frame, 8 × 8 pixels as 128 hexadecimal digits, or "" if it is
    unknown. ``bytes`` and ``mtime_ns``: size and time of change of the file before it was decoded; None if nobody
    looked, or if there is no file.
    """

    path: str
    kind: str
    reason: str = ""
    frames: int = 0
    fps: float | None = None
    duration_seconds: float | None = None
    width: int | None = None
    height: int | None = None
    codec: str | None = None
    seconds: float = 0.0
    mean_frame: str = ""
    bytes: int | None = field(default=None, compare=False)
    mtime_ns: int | None = field(default=None, compare=False)

    @property
    def is_usable(self) -> bool:
        return self.kind in USABLE_KINDS


@dataclass
class _Seen:
    """Counts of the frames that the decoder has given so far, and the damage that it has met.

    ``times``: number of frames that have a time. ``end``: where the last of them ends. ``seen_until``: after a
    seek, the time of the last frame that was counted before it.
    """

    frames: int = 0
    times: int = 0
    first_time: int | None = None
    last_time: int | None = None
    end: int | None = None
    size: tuple[int, int] | None = None
    other_size: tuple[int, int] | None = None
    seen_until: int | None = None
    num_disordered: int = 0
    damage: list[str] = field(default_factory=list)
    greys: list[Any] = field(default_factory=list)

    def add(self, frame: Any) -> None:
        """Count one decoded frame, unless it was counted before a seek (up to ``seen_until``)."""
        # A seek goes back to a keyframe, so frames that were counted before may come again.
        if None not in (frame.pts, self.seen_until) and frame.pts <= self.seen_until:
            return
        if self.frames % MEAN_EVERY == 0:
            self.greys += _small_grey(frame)
        self.frames += 1
        size = (frame.width, frame.height)
        self.size = self.size or size
        if size != self.size:
            self.other_size = size
        if frame.is_corrupt:
            self.add_damage("a frame is damaged")
        if frame.pts is None:
            return
        self.times += 1
        self.first_time = frame.pts if self.first_time is None else self.first_time
        if self.last_time is not None and frame.pts <= self.last_time:
            self.num_disordered += 1
        self.last_time = frame.pts
        self.end = max(self.end or frame.pts, frame.pts + (frame.duration or 0))

    def add_damage(self, what: str) -> None:
        """Record a damaged packet or frame, and the number of frames before it."""
        self.damage.append(f"after {self.frames} frames: {what}")

    def verdict(self) -> tuple[str, str]:
        """Return the kind of the result, and the reason in words."""
        # A video gets one kind, so the kinds that training cannot use come first.
        # A clip is a list of moments: frames without a time are of no use to training.
        if not self.times and (self.damage or self.frames):
            reason = self.damage[0] if self.damage else f"none of {self.frames} frames has a time"
            return "decode_error_no_frame", reason
        if not self.frames:
            return "zero_frames", "the file ends without a frame"
        if self.damage:
            return "decode_error_partial", f"{len(self.damage)} times, first {self.damage[0]}"
        if self.size and self.other_size:
            before, after = ("×".join(map(str, size)) for size in (self.size, self.other_size))
            return "changes_size", f"from {before} to {after}"
        num_strange = self.num_disordered + self.frames - self.times
        if num_strange:
            strange = f"{num_strange} of {self.frames} frames"
            reason = f"{strange} have no time, or one not after the last"
            return "timestamps_not_monotonic", reason
        return "ok", ""


def check_video(path: str, quick: bool) -> VideoCheck:
    """Decode all frames of a video and judge it. Raises nothing for a bad file.

    With ``quick``, decode only its first and its last second, or the first and the last image of a folder.
    """
    start, (size, changed) = time.perf_counter(), state_of(path)
    is_folder = os.path.isdir(path)
    check = _check_folder(path, quick) if is_folder else _check_file(path, quick)
    seconds = round(time.perf_counter() - start, 4)
    return replace(check, seconds=seconds, bytes=size, mtime_ns=changed)


def _check_file(path: str, quick: bool) -> VideoCheck:
    try:
        status = os.stat(path)
    # A path with a NUL character raises ValueError.
    except (OSError, ValueError) as error:
        return VideoCheck(path, "missing", _words(error))
    # Opening a pipe would wait for ever, so only regular files are opened.
    if not stat.S_ISREG(status.st_mode):
        return VideoCheck(path, "missing", "is not a file")
    if not status.st_size:
        return VideoCheck(path, "empty_file", "0 bytes")
    try:
        container = av.open(path, metadata_errors="replace")
    except AV_ERRORS as error:
        return VideoCheck(path, "open_fails", _words(error))
    with container:
        stream: Any = container.streams.best("video")
        if stream is None or stream.codec_context is None:
            reason = "no video stream" if stream is None else "its codec is unknown"
            return VideoCheck(path, "no_video_stream", reason)
        # One thread for each file, since many files are checked at the same time.
        stream.codec_context.thread_count = 1
        seen = _Seen()
        if quick:
            _decode_ends(container, stream, seen)
        else:
            _decode_rest(container, stream, seen)
        duration = header_duration(container, stream)
        if lost := _lost_end(duration, stream, seen):
            seen.add_damage(lost)
        kind, reason = seen.verdict()
        if duration is None and seen.first_time is not None and seen.end is not None:
            duration = float((seen.end - seen.first_time) * stream.time_base)
        rate = stream.average_rate
        width, height = seen.size or (None, None)
        check = VideoCheck(
            path=path,
            kind=kind,
            reason=reason,
            frames=seen.frames,
            fps=float(rate) if rate else None,
            duration_seconds=duration,
            width=width,
            height=height,
            codec=stream.codec_context.name,
            mean_frame=_mean_frame(seen.greys),
        )
    # A seek may lead behind the last keyframe, as in a transport stream, and then nothing comes after it. The full
    # check tells an end that no seek reaches from a lost one.
    return _check_file(path, quick=False) if quick and lost else check


def _check_folder(path: str, quick: bool) -> VideoCheck:
    """Check a folder of images. Its frame rate is a key of the configuration, so its duration is unknown here."""
    try:
        folder = FrameFolder(path)
    except VideoError as error:
        return VideoCheck(path, "no_sequence", error.reason)
    places = sorted({0, len(folder.images) - 1}) if quick else range(len(folder.images))
    sizes: dict[tuple[int, ...], str] = {}
    damage: list[str] = []
    greys: list[Any] = []
    for place in places:
        try:
            image = folder.image(place)
            sizes.setdefault(image.shape[:2], folder.images[place])
            if place % MEAN_EVERY == 0:
                greys += _small_grey(av.VideoFrame.from_ndarray(image, "rgb24"))
        except VideoError as error:
            damage.append(f"{folder.images[place]} {error.reason}")
    kind, reason = "ok", ""
    if damage:
        kind = "decode_error_partial" if sizes else "decode_error_no_frame"
        reason = f"{len(damage)} images, first {damage[0]}"
    elif len(sizes) > 1:
        kind = "sizes_differ"
        first_two = list(sizes.items())[:2]
        reason = " and ".join(f"{wide}×{tall} ({name})" for (tall, wide), name in first_two)
    height, width = next(iter(sizes), (None, None))
    ending = Path(folder.images[0]).suffix.lower().lstrip(".")
    return VideoCheck(
        path=path,
        kind=kind,
        reason=reason,
        frames=len(folder.images) - len(damage),
        width=width,
        height=height,
        codec=ending,
        mean_frame=_mean_frame(greys),
    )


def _small_grey(frame: Any) -> list[Any]:
    """Return a frame in grey and 8 × 8 pixels, or nothing if its format cannot be converted."""
    with suppress(*AV_ERRORS):
        return [frame.reformat(MEAN_SIDE, MEAN_SIDE, "gray", interpolation="AREA").to_ndarray()]
    return []


def _mean_frame(greys: list[Any]) -> str:
    return np.mean(greys, axis=0).round().astype(np.uint8).tobytes().hex() if greys else ""


def _decode_rest(container: Any, stream: Any, seen: _Seen, enough_ticks: float = math.inf) -> bool:
    """Decode until ``enough_ticks`` after the start of the video; return False if the file ended first."""
    start = stream.start_time or 0
    try:
        for packet in container.demux(stream):
            if packet.is_corrupt:
                seen.add_damage("a packet is incomplete")
            try:
                for frame in packet.decode():
                    seen.add(frame)
            except AV_ERRORS as error:
                seen.add_damage(_words(error))
            # The last packet is empty and brings out the frames that the decoder held back.
            is_enough = seen.last_time is not None and seen.last_time - start >= enough_ticks
            if packet.size and is_enough:
                return True
    except AV_ERRORS as error:
        seen.add_damage(f"cannot be read further: {_words(error)}")
    return False


def _decode_ends(container: Any, stream: Any, seen: _Seen) -> None:
    """Decode the first and the last second; decode everything if the video is short or its end is unknown."""
    start, ticks = stream.start_time or 0, QUICK_SECONDS / float(stream.time_base)
    if not _decode_rest(container, stream, seen, ticks):
        return
    duration = header_duration(container, stream)
    if duration is not None and duration > 2 * QUICK_SECONDS:
        end = start + int(duration / float(stream.time_base))
        # If the seek fails, as in a file without an index, the rest of the file is decoded.
        with suppress(*AV_ERRORS):
            container.seek(max(start, end - int(ticks)), stream=stream)
            seen.seen_until, seen.last_time = seen.last_time, None
    _decode_rest(container, stream, seen)


def _lost_end(duration: float | None, stream: Any, seen: _Seen) -> str:
    """Say how much is missing of the ``duration`` in the header; "" if nothing is, or if the header has none.

    A Matroska file that was cut has its full duration in the header, and ends without an error.
    """
    if duration is None or seen.end is None:
        return ""
    end = float((seen.end - (stream.start_time or 0)) * stream.time_base)
    if duration - end <= LOST_SECONDS:
        return ""
    return f"the frames end at {end:.1f} s, but the header says {duration:.1f} s"


def _words(error: BaseException) -> str:
    """Return what an error says, if possible without the number and the path that ``str`` adds."""
    return str(getattr(error, "strerror", None) or error)


def state_of(path: str) -> tuple[int | None, int | None]:
    """Return the size and the time of change of a video; None for both if there is no file."""
    try:
        stamp = stamp_of(path)
    # A path with a NUL character raises ValueError.
    except (OSError, ValueError):
        return None, None
    return stamp.size_bytes, stamp.mtime_ns
