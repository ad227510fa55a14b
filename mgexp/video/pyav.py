"""Read the frames of a video file at given times, and decode no more than they need (PyAV, one thread).

- an mp4 is opened by its header alone, without decoding first frames to guess what it says (measured,
  PyAV 18, one core, H.264, 170 × 128 pixels: 0.14 instead of 0.54 ms);
- only the groups of pictures (from one keyframe to the next) that hold wanted frames are decoded, each up
  to its last wanted frame; in an intra-coded file these are the wanted frames alone;
- H.264 frames that are neither wanted nor a reference for others are skipped;
- only wanted frames become RGB, each once, with one scaler of one thread (measured: 4 instead of 60 us).

Wherever the result of a short cut is not certain, the file is decoded from its start.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, takewhile
from typing import Any

import av
import numpy as np

from mgexp.video.reader import TOLERANCE_SECONDS, Cut, Frames, Times, VideoError, whole
from mgexp.video.rgb import RgbConverter, displayed_size, quarter_turns

_HEADER_ONLY: Any = {"format": "mp4", "options": {"skip_frame": "all", "probesize": "32"}}
"""Options that open an mp4 without probing. Its header already tells codec, size, times and duration."""
AV_ERRORS = (av.FFmpegError, ValueError, RuntimeError)
"""The errors that PyAV raises for a file that it cannot read. For unknown formats it raises the last two."""

Rows = Sequence[int]
"""Places in a clip that show the same frame."""


class PyavReader:
    """An open video file; see ``mgexp.video.reader.Video``. Raises VideoError if it cannot be opened."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._container: Any = None
        with as_video_error(path, "cannot be opened"):
            if path.lower().endswith((".mp4", ".m4v", ".mov")):
                # This fails where the file is not what its name says. FFmpeg then finds out what it is.
                with suppress(*AV_ERRORS):
                    self._container = _opened_by_header(path)
            if self._container is None:
                # By default PyAV raises an error for a file with a title that is not UTF-8.
                self._container = av.open(path, metadata_errors="replace")
        try:
            self._stream = _video_stream(path, self._container)
        except VideoError:
            self._container.close()
            raise
        self._context = self._stream.codec_context
        self._start, self._ticks_per_second = stream_clock(self._stream)

    def __enter__(self) -> PyavReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._container.close()

    @property
    def duration_seconds(self) -> float:
        """Seconds from the first frame to the end of the last: from the header, or else by reading the file."""
        if duration := header_duration(self._container, self._stream):
            return duration
        with all_packets(self.path, "cannot be read") as (_, packets):
            ends = [p.pts + (p.duration or 0) for p in packets if p.pts is not None]
            if not ends:
                raise VideoError(self.path, "has no frame with a timestamp")
            return float((max(ends) - self._start) / self._ticks_per_second)

    def frames_at(
        self, times_seconds: Times, short_side: float | None = None, cut: Cut = whole
    ) -> Frames:
        times = [float(time) for time in times_seconds]
        decoded = self._decode(times)
        first = next(decoded)
        size = displayed_size(first[0])
        # Only one large picture is in memory at a time.
        part = cut(size)
        pixels = np.empty((len(times), part.height, part.width, 3), np.uint8)
        to_rgb = RgbConverter()
        with as_video_error(self.path, "cannot be decoded"):
            for frame, rows in chain([first], decoded):
                if displayed_size(frame) != size:
                    shapes = f"{size}, then {displayed_size(frame)}"
                    raise VideoError(self.path, f"changes shape: {shapes}")
                # The region is given for the upright picture, so a frame is turned before it is cut.
                upright = np.rot90(to_rgb(frame), quarter_turns(frame.rotation))
                for row in rows:
                    # A copy: the picture is a view of memory that the next frame overwrites.
                    pixels[row] = upright[part.rows, part.columns]
        return Frames(pixels, size, part)

    def _decode(self, times: Sequence[float]) -> Iterator[tuple[Any, Rows]]:
        """Yield the frames at ``times``, each with its rows. Rows that come twice replace the first ones."""
        ticks = ticks_of(times, self._start, self._ticks_per_second)
        # The short cut looks packets up by their times of display, which these files do not have.
        if not has_times_of_decoding(self._stream):
            with suppress(*AV_ERRORS):
                # A short cut that fails late has already yielded some frames.
                if (yield from self._decode_wanted(ticks)):
                    return
        yield from self._decode_from_start(times)

    def _decode_wanted(self, ticks: Sequence[int]) -> Generator[tuple[Any, Rows], None, bool]:
        """Yield the frames at ``ticks`` from the groups of pictures that hold them; return False if uncertain."""
        packets = self._packets_between(min(ticks), max(ticks))
        rows = rows_by_pts(packets, ticks)
        if rows is None:
            return False
        pts = [packet.pts for packet in packets]
        keys = [index for index, packet in enumerate(packets) if packet.is_keyframe]
        targets = [index for index, time in enumerate(pts) if time in rows]
        for run in plan_runs(pts, keys, targets):
            latest = -math.inf
            for frame in self._decode_run(packets[run.start : run.stop], rows):
                # A decoder gives frames in the order of display. Where it does not, the times are wrong.
                if frame.pts is None or frame.pts <= latest:
                    return False
                latest = frame.pts
                if frame.pts in rows:
                    yield frame, rows.pop(frame.pts)
        return not rows

    def _packets_between(self, first_tick: int, last_tick: int) -> list[Any]:
        """Return the packets, from a keyframe on, that hold the frames on display between two ticks."""
        # Some formats search by decoding time, which is a little earlier than display time. If the
        # search lands after ``first_tick``, a second search starts a second earlier.
        for margin_seconds in (0, 1):
            earlier = first_tick - int(margin_seconds * self._ticks_per_second)
            self._container.seek(max(self._start, earlier), stream=self._stream)
            # A packet is decoded before it is displayed. So the first packet that is decoded after
            # ``last_tick``, and all packets behind it, are displayed after ``last_tick`` too.
            ahead = self._container.demux(self._stream)
            until = takewhile(lambda packet: packet.dts is None or packet.dts <= last_tick, ahead)
            packets = [packet for packet in until if packet.size]
            if packets and packets[0].pts is not None and packets[0].pts <= first_tick:
                break
        return packets

    def _decode_run(self, packets: Sequence[Any], wanted: Mapping[int, object]) -> Iterator[Any]:
        """Yield the frames of adjacent packets from a keyframe on, at least the frames that are ``wanted``."""
        context = self._context
        # In H.264 nal_ref_idc = 0 promises that no other frame refers to this one. (In HEVC the same mark
        # promises less: a frame of a higher temporal layer may refer to it.)
        may_skip = context.name == "h264"
        # After a seek the decoder still holds frames of the packets that it decoded before.
        context.flush_buffers()
        for packet in packets:
            if may_skip:
                context.skip_frame = "DEFAULT" if packet.pts in wanted else "NONREF"
            yield from context.decode(packet)
        # A decoder holds frames back to give them in the order of display, and None brings them out. The caller
        # removes each frame that it gets from ``wanted``, so this is needed only if one of them is left.
        if any(packet.pts in wanted for packet in packets):
            yield from context.decode(None)

    def _decode_from_start(self, times: Sequence[float]) -> Iterator[tuple[Any, Rows]]:
        """Yield the frames at ``times`` by decoding one frame after the other: slow, and right by definition."""
        with all_frames(self.path, "cannot be decoded") as (stream, frames):
            ticks = ticks_of(times, *stream_clock(stream))
            waiting = sorted(range(len(ticks)), key=ticks.__getitem__)
            # A frame stays on display until the next one. So its rows are known only when the next one comes.
            shown = None
            for frame in (frame for frame in frames if frame.pts is not None):
                num_shown = sum(ticks[row] < frame.pts for row in waiting) if shown else 0
                if num_shown:
                    yield shown, waiting[:num_shown]
                waiting = waiting[num_shown:]
                shown = frame
                if not waiting:
                    return
            if shown is None:
                raise VideoError(self.path, "has no frame with a timestamp that can be decoded")
            yield shown, waiting


def _opened_by_header(path: str) -> Any:
    """Open an mp4 without probing. Return None if its header does not tell when the first frame is on display."""
    container = av.open(path, metadata_errors="replace", **_HEADER_ONLY)
    # The header of a fragmented file counts no frames. Its first packet may be sound, and tells nothing of the
    # video's clock.
    if all(stream.frames for stream in container.streams.video):
        return container
    container.close()
    return None


@contextmanager
def all_packets(path: str, what: str) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Give the video stream of a file and all its packets from the start.

    The last packet is empty: decoding it brings out the frames that the decoder holds back. Raises VideoError,
    which says ``what``, for an error of PyAV in the block and for an incomplete packet.
    """

    def sound(packets: Iterable[Any]) -> Iterator[Any]:
        for packet in packets:
            if packet.is_corrupt:
                raise VideoError(path, "is cut short or damaged: a packet of it is incomplete")
            yield packet

    with as_video_error(path, what), av.open(path, metadata_errors="replace") as container:
        stream = _video_stream(path, container)
        yield stream, sound(container.demux(stream))


@contextmanager
def all_frames(path: str, what: str) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Give the video stream of a file and all its frames from the start, in the order of display."""
    with all_packets(path, what) as (stream, packets):
        if has_times_of_decoding(stream):
            yield stream, _retimed(packets)
        else:
            yield stream, (frame for packet in packets for frame in packet.decode())


def has_times_of_decoding(stream: Any) -> bool:
    """Return whether the times of packets are those of decoding and not of display: AVI with B-frames."""
    return bool(stream.container.format.name == "avi" and stream.codec_context.has_b_frames)


def _retimed(packets: Iterable[Any]) -> Iterator[Any]:
    """Decode packets. Frames come in the order of display, and get the times of decoding in that order."""
    times: deque[int] = deque()
    for packet in packets:
        if packet.dts is not None:
            times.append(packet.dts)
        for frame in packet.decode():
            # Without a time, a frame counts as one that is never on display.
            frame.pts = times.popleft() if times else None
            yield frame


def plan_runs(pts: Sequence[int], keys: Sequence[int], targets: Iterable[int]) -> list[range]:
    """Choose ranges of packets that give the ``targets``; they are disjoint, and each starts at a keyframe.

    ``pts``: display times of the packets, in decoding order. ``keys``: indices of the keyframes,
    ascending; the first is 0. ``targets``: indices of the wanted frames, ascending.
    """
    runs: list[range] = []
    for target in targets:
        group = bisect_right(keys, target) - 1
        # In an open GOP, a frame that is displayed before its keyframe also refers to the group before it.
        if pts[target] < pts[keys[group]]:
            group = max(group - 1, 0)
        first = keys[group]
        # Ranges that overlap or touch are joined, so that no packet is decoded twice.
        while runs and first <= runs[-1].stop:
            first = min(first, runs.pop().start)
        runs.append(range(first, target + 1))
    return runs


def rows_by_pts(packets: Sequence[Any], ticks: Sequence[int]) -> dict[int, list[int]] | None:
    """Map the time of the packet on display to the indices of its ``ticks``; None if there is any doubt."""
    pts = [packet.pts for packet in packets]
    if None in pts or len(set(pts)) < len(pts) or any(packet.is_corrupt for packet in packets):
        return None
    if not packets or not packets[0].is_keyframe or pts[0] > min(ticks):
        return None
    displayed = sorted(packet.pts for packet in packets if not packet.is_discard)
    rows: dict[int, list[int]] = {}
    for row, tick in enumerate(ticks):
        position = bisect_right(displayed, tick) - 1
        if position < 0:
            return None
        rows.setdefault(displayed[position], []).append(row)
    return rows


def header_duration(container: Any, stream: Any) -> float | None:
    """Return the seconds from the first frame to the end of the last; None if the header does not say."""
    # MPEG program streams (.mpg, .vob) have no such header. FFmpeg estimates their duration, often too short.
    if container.format.name == "mpeg":
        return None
    is_alone = len(container.streams) == 1
    # FFmpeg gives each stream of a .wmv file the duration of the file.
    if stream.duration and (is_alone or container.format.name != "asf"):
        return float(stream.duration * stream.time_base)
    # What follows says when the video ends. This is its duration if it starts at 0.
    if stream.start_time:
        return None
    # The whole file ends with the longest stream, which may be the sound.
    if is_alone and container.duration:
        return float(container.duration / av.time_base)
    # Matroska has a tag for each stream, such as 00:00:02.066000000.
    clock = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", stream.metadata.get("DURATION", ""))
    if clock is None:
        return None
    hours, minutes, seconds = map(float, clock.groups())
    return 3600 * hours + 60 * minutes + seconds or None


def stream_clock(stream: Any) -> tuple[int, float]:
    """Return the timestamp at which a stream starts, and the number of timestamps per second."""
    base = stream.time_base
    return stream.start_time or 0, base.denominator / base.numerator


def ticks_of(times: Sequence[float], start: int, ticks_per_second: float) -> list[int]:
    """Turn times in seconds into timestamps of a stream, none before its start."""
    return [start + max(0, math.floor((t + TOLERANCE_SECONDS) * ticks_per_second)) for t in times]


def _video_stream(path: str, container: Any) -> Any:
    """Return the video stream, set to decode in one thread, since loaders run a process for each core."""
    stream = container.streams.best("video")
    if stream is None or stream.codec_context is None:
        raise VideoError(path, "has no video stream of a codec that is known")
    stream.codec_context.thread_count = 1
    return stream


@contextmanager
def as_video_error(path: str, what: str) -> Iterator[None]:
    """Turn an error of PyAV in the block into a VideoError that says ``what`` about the file."""
    try:
        yield
    except AV_ERRORS as error:
        raise VideoError(path, f"{what}: {getattr(error, 'strerror', error)}") from error
