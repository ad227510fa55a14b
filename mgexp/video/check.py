"""One video file, opened and decoded to see whether training can use it, and what is wrong with it if not."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import av

from mgexp.video.pyav import AV_ERRORS

KINDS = {
    "ok": "decodes, nothing strange",
    "timestamps_not_monotonic": "decodes, but frames come out of the order of their times (still usable)",
    "missing": "there is no such file",
    "empty_file": "the file holds no byte",
    "open_fails": "no format that is known, or its header is damaged",
    "no_video_stream": "no video stream of a codec that is known",
    "zero_frames": "a video stream without a frame",
    "decode_error_partial": "some frames cannot be decoded",
    "decode_error_no_frame": "no frame can be decoded, or none has a time",
    "changes_size": "frames of different sizes, that make no clip",
    "hung": "no result within the time limit",
    "crashed": "the decoder ended its process",
}
"""What can be found, in the order of the table, and what it means."""
USABLE_KINDS = frozenset({"ok", "timestamps_not_monotonic"})
QUICK_SECONDS = 1.0
"""Of the start and of the end of a video that a quick check decodes. Assumption: files that were cut short or
written badly fail at their ends; what is damaged in the middle needs the full check."""


@dataclass(frozen=True)
class VideoCheck:
    """What was found: ``kind`` of KINDS and the ``reason`` in words, empty if ok.

    ``frames``: those that were decoded. ``fps`` and ``duration_seconds`` as the header says, the duration
    from the frames where it does not. ``width`` and ``height``: pixels of the first frame. None: unknown.
    ``seconds``: how long the check took.
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

    @property
    def is_usable(self) -> bool:
        """Whether training can use the video."""
        return self.kind in USABLE_KINDS


@dataclass
class _Seen:
    """What came out of the decoder so far."""

    frames: int = 0
    times: int = 0
    first_time: int | None = None
    last_time: int | None = None
    size: tuple[int, int] | None = None
    other_size: tuple[int, int] | None = None
    seen_until: int | None = None
    num_disordered: int = 0
    damage: list[str] = field(default_factory=list)

    def add(self, frame: Any) -> None:  # noqa: ANN401 (PyAV is untyped here)
        """Takes note of one decoded frame, unless it is not later than ``seen_until``."""
        if None not in (frame.pts, self.seen_until) and frame.pts <= self.seen_until:
            return
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

    def add_damage(self, what: str) -> None:
        """Takes note of a packet or frame that is not sound, and where."""
        self.damage.append(f"after {self.frames} frames: {what}")

    def verdict(self) -> tuple[str, str]:
        """Kind and reason."""
        if not self.times and (self.damage or self.frames):
            reason = self.damage[0] if self.damage else f"none of {self.frames} frames has a time"
            return "decode_error_no_frame", reason
        if not self.frames:
            return "zero_frames", "the file ends without a frame"
        if self.damage:
            return "decode_error_partial", f"{len(self.damage)} times, first {self.damage[0]}"
        if self.other_size:
            return "changes_size", f"from {_pixels(self.size)} to {_pixels(self.other_size)}"
        num_strange = self.num_disordered + self.frames - self.times
        if num_strange:
            reason = (
                f"{num_strange} of {self.frames} frames have no time, or one not after the last"
            )
            return "timestamps_not_monotonic", reason
        return "ok", ""


def check_video(path: str, quick: bool) -> VideoCheck:
    """Decodes all frames of a video; with ``quick`` its first and its last second. Raises nothing for a bad file.

    After a packet that cannot be decoded it goes on with the next one.
    """
    start = time.perf_counter()
    kind = _kind_of_file(path)
    found = VideoCheck(path, *kind) if kind else _check_content(path, quick)
    return replace(found, seconds=round(time.perf_counter() - start, 4))


def _kind_of_file(path: str) -> tuple[str, str] | None:
    """Kind and reason where there is nothing to open."""
    try:
        status = os.stat(path)  # noqa: PTH116 (paths are text everywhere in lists)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        return "missing", getattr(error, "strerror", None) or str(error)
    if not stat.S_ISREG(status.st_mode):
        return "missing", "is not a file"
    return None if status.st_size else ("empty_file", "0 bytes")


def _check_content(path: str, quick: bool) -> VideoCheck:
    try:
        container = av.open(path, metadata_errors="replace")
    except AV_ERRORS as error:
        return VideoCheck(path, "open_fails", _words(error))
    with container:
        stream = container.streams.best("video")
        if stream is None or stream.codec_context is None:
            reason = "no video stream" if stream is None else "its codec is unknown"
            return VideoCheck(path, "no_video_stream", reason)
        stream.codec_context.thread_count = 1  # the files are checked in parallel
        seen = _Seen()
        (_decode_ends if quick else _decode_rest)(container, stream, seen)
        return _described(path, container, stream, seen)


def _decode_rest(
    container: Any,  # noqa: ANN401
    stream: Any,  # noqa: ANN401
    seen: _Seen,
    is_enough: Callable[[], bool] = lambda: False,
) -> bool:
    """Decodes from where the container is until it ``is_enough``; False if it came to its end before."""
    for packet in _packets(container, stream, seen):
        try:
            for frame in packet.decode():
                seen.add(frame)
        except AV_ERRORS as error:
            seen.add_damage(_words(error))
        if (
            packet.size and is_enough()
        ):  # the last packet is empty: it brings out what was held back
            return True
    return False


def _packets(container: Any, stream: Any, seen: _Seen) -> Iterator[Any]:  # noqa: ANN401
    """The packets up to the end of the file, or to where it cannot be read further."""
    try:
        for packet in container.demux(stream):
            if packet.is_corrupt:
                seen.add_damage("a packet is incomplete")
            yield packet
    except AV_ERRORS as error:
        seen.add_damage(f"cannot be read further: {_words(error)}")


def _decode_ends(container: Any, stream: Any, seen: _Seen) -> None:  # noqa: ANN401
    """Decodes the first second and the last one; everything where it is unknown where the end is."""
    start, ticks = stream.start_time or 0, QUICK_SECONDS / float(stream.time_base)

    def is_enough() -> bool:
        return seen.last_time is not None and seen.last_time - start >= ticks

    if not _decode_rest(container, stream, seen, is_enough):
        return
    duration = _header_duration(container, stream)
    if duration is not None and duration > 2 * QUICK_SECONDS:
        end = start + int(duration / float(stream.time_base))
        with suppress(*AV_ERRORS):  # a file without an index can still be read to its end
            container.seek(max(start, end - int(ticks)), stream=stream)
            seen.seen_until, seen.last_time = seen.last_time, None
    num_before = seen.frames
    _decode_rest(container, stream, seen)
    if seen.seen_until is not None and seen.frames == num_before:
        seen.add_damage("no frame comes from its last second")


def _described(path: str, container: Any, stream: Any, seen: _Seen) -> VideoCheck:  # noqa: ANN401
    kind, reason = seen.verdict()
    duration = _header_duration(container, stream)
    if duration is None and seen.first_time is not None and seen.last_time is not None:
        duration = float((seen.last_time - seen.first_time) * stream.time_base)
    rate = stream.average_rate
    width, height = seen.size or (None, None)
    return VideoCheck(
        path=path,
        kind=kind,
        reason=reason,
        frames=seen.frames,
        fps=float(rate) if rate else None,
        duration_seconds=duration,
        width=width,
        height=height,
        codec=stream.codec_context.name,
    )


def _header_duration(container: Any, stream: Any) -> float | None:  # noqa: ANN401
    if stream.duration:
        return float(stream.duration * stream.time_base)
    if container.duration:
        return float(container.duration / av.time_base)
    return None


def _words(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error)


def _pixels(size: tuple[int, int] | None) -> str:
    return "×".join(map(str, size or ()))
