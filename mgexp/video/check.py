"""Check whether training can use video files, and say what is wrong with the files that it cannot use.

`check_video` decodes one file. `check_videos` checks many in other processes, since a damaged file can hang or
crash its decoder. `CheckLog` keeps the results in a folder, so that a second call continues where the first one
stopped. `check_in_folder` does all of this, and shows how far it is.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import av

from mgexp.errors import InputError
from mgexp.run.files import append_jsonl, atomic_write_text, cut_jsonl, read_jsonl, understanding
from mgexp.run.folder import CheckDir
from mgexp.run.log import progress_bar
from mgexp.text import counted, escaped
from mgexp.video.frame_folder import FrameFolder
from mgexp.video.paths import Root
from mgexp.video.processes import CANNOT_START, map_in_processes, no_result
from mgexp.video.pyav import AV_ERRORS, header_duration
from mgexp.video.reader import VideoError
from mgexp.video.store import stamp_of

# ruff: noqa: ANN401 (the objects of PyAV are untyped here)

KINDS = {
    "ok": "decodes, nothing strange",
    "timestamps_not_monotonic": "decodes, but frames come out of the order of their times (still usable)",
    "sizes_differ": "a folder of images of several sizes, which are resized to the first of a clip (still usable)",
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
PASSING_KINDS = frozenset({"missing", "open_fails", "no_sequence", "crashed"})
"""Kinds whose reason may be the system and not the video, such as rights, a file server, or full memory."""
USABLE_KINDS = frozenset({"ok", "timestamps_not_monotonic", "sizes_differ"})
QUICK_SECONDS = 1.0
"""Seconds that a quick check decodes at the start and at the end of a video. Assumption: a file
that was cut short or written badly fails at one of its ends. Only the full check finds damage in
the middle."""


@dataclass(frozen=True)
class VideoCheck:
    """The result for one video: its ``kind`` (see KINDS) and the ``reason`` in words, which is empty if all is ok.

    ``frames``: number of frames that were decoded; of a folder of images, of images without damage
    that was seen. ``fps`` and ``duration_seconds`` come from the
    header. If the header has no duration, the times of the frames give it. ``width`` and
    ``height``: pixels of the first frame. A value of None is unknown. ``seconds``: how long the
    check took, 0 if its process died. ``state``: size and time of change of the file before it was
    decoded; None if nobody looked.
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
    state: Mapping[str, int | None] | None = field(default=None, compare=False)

    @property
    def is_usable(self) -> bool:
        """Whether training can use the video."""
        return self.kind in USABLE_KINDS


@dataclass
class _Seen:
    """Counts of the frames that the decoder has given so far, and the damage that it has met.

    ``times``: number of frames that have a time. ``seen_until``: after a seek, the time of the last
    frame that was counted before it.
    """

    frames: int = 0
    times: int = 0
    first_time: int | None = None
    last_time: int | None = None
    size: tuple[int, int] | None = None
    other_size: tuple[int, int] | None = None
    seen_until: int | None = None
    num_disordered: int = 0
    damage: list[str] = field(default_factory=list)

    def add(self, frame: Any) -> None:
        """Count one decoded frame, unless it was counted before a seek (up to ``seen_until``)."""
        # A seek goes back to a keyframe, so frames that were counted before may come again.
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
    """Decode all frames of a video and judge it; with ``quick``, decode only its first and its last second.

    Of a folder of images, ``quick`` decodes the first and the last. If a packet cannot be decoded,
    continue with the next one. Raises nothing for a bad file.
    """
    start, state = time.perf_counter(), _state_of(path)
    is_folder = os.path.isdir(path)  # noqa: PTH112 (240,000 videos)
    found = _check_folder(path, quick) if is_folder else _check_file(path, quick)
    return replace(found, seconds=round(time.perf_counter() - start, 4), state=state)


def _check_file(path: str, quick: bool) -> VideoCheck:
    try:
        status = os.stat(path)  # noqa: PTH116 (paths are text everywhere in lists)
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
        kind, reason = seen.verdict()
        duration = header_duration(container, stream)
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


def _check_folder(path: str, quick: bool) -> VideoCheck:
    """Check a folder of images. Its frame rate is a key of the configuration, so its duration is unknown here."""
    try:
        folder = FrameFolder(path)
    except VideoError as error:
        return VideoCheck(path, "no_sequence", error.reason)
    places = sorted({0, len(folder.images) - 1}) if quick else range(len(folder.images))
    sizes: dict[tuple[int, ...], str] = {}
    damage: list[str] = []
    for place in places:
        try:
            sizes.setdefault(folder.image(place).shape[:2], folder.images[place])
        except VideoError as error:
            damage.append(f"{folder.images[place]} {error.reason}")
    kind, reason = "ok", ""
    if damage:
        kind = "decode_error_partial" if sizes else "decode_error_no_frame"
        reason = f"{len(damage)} images, first {damage[0]}"
    elif len(sizes) > 1:
        kind, found = "sizes_differ", list(sizes.items())[:2]
        reason = " and ".join(f"{wide}×{tall} ({name})" for (tall, wide), name in found)
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
    )


def _decode_rest(container: Any, stream: Any, seen: _Seen, enough_ticks: float = math.inf) -> bool:
    """Decode from the position of the container until ``enough_ticks`` after the start of the video.

    Return True if a frame got so far, and False if the file ended first.
    """
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
            # The last packet is empty. It brings out the frames that the decoder held back, and
            # then the file has ended, however late the last frame is.
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
    num_before = seen.frames
    _decode_rest(container, stream, seen)
    # A file whose end was lost may still have its full duration in the header.
    if seen.seen_until is not None and seen.frames == num_before:
        seen.add_damage("no frame comes from its last second")


def _words(error: BaseException) -> str:
    """Return what an error says, if possible without the number and the path that ``str`` adds."""
    return str(getattr(error, "strerror", None) or error)


def check_videos(
    paths: Sequence[str],
    *,
    quick: bool,
    num_processes: int,
    limit_seconds: float,
    check: Callable[..., VideoCheck] = check_video,
) -> Generator[VideoCheck, None, None]:
    """Check the videos in ``num_processes`` processes; yield the results in the order in which they are ready.

    A video without a result after ``limit_seconds`` is ``hung``. If its process died, it is
    ``crashed``. Raises RuntimeError if a process ends before it gets a video.
    """

    def failed(path: str, error: Exception) -> VideoCheck:
        reason = no_result(error, limit_seconds)
        if isinstance(error, FutureTimeoutError):
            return VideoCheck(path, "hung", reason, seconds=limit_seconds)
        return VideoCheck(path, "crashed", reason)

    # Checking a data set takes hours. The niceness lets the other programs on the machine go first.
    return map_in_processes(
        partial(check, quick=quick),
        paths,
        num_processes,
        limit_seconds=limit_seconds,
        failure=failed,
        niceness=10,
    )


NUM_EXAMPLES = 3
"""Number of videos of each kind that the table names. ``CheckDir.videos_jsonl`` names all of them."""


@dataclass(frozen=True)
class CheckSummary:
    """The checks of all videos of a call. An earlier call made ``num_known`` of them."""

    checks: Sequence[VideoCheck]
    num_known: int

    @cached_property
    def counts(self) -> dict[str, int]:
        """Videos of each kind that was found, in the order of KINDS."""
        found = Counter(check.kind for check in self.checks)
        return {kind: found[kind] for kind in KINDS if found[kind]}

    @property
    def num_unusable(self) -> int:
        """Videos that training cannot use."""
        return sum(num for kind, num in self.counts.items() if kind not in USABLE_KINDS)

    def as_json(self) -> dict[str, Any]:
        """Return the numbers for programs."""
        return {
            "num_videos": len(self.checks),
            "num_unusable": self.num_unusable,
            "num_known": self.num_known,
            "kinds": self.counts,
            "video_seconds": sum(check.duration_seconds or 0.0 for check in self.checks),
        }

    def as_text(self) -> str:
        """Return a line for each kind, with its share and meaning; below it, the first videos that are not ok."""
        lines = [f"{'kind':<26}{'videos':>9}{'share':>9}  meaning"]
        for kind, num in self.counts.items():
            lines.append(f"{kind:<26}{num:>9,}{num / len(self.checks):>9.2%}  {KINDS[kind]}")
            if kind == "ok":
                continue
            found = [check for check in self.checks if check.kind == kind]
            lines += [
                f"    {check.path}: {escaped(check.reason)}" for check in found[:NUM_EXAMPLES]
            ]
            if num > NUM_EXAMPLES:
                lines.append(f"    ... and {num - NUM_EXAMPLES:,} more")
        lines.append(
            f"{counted(len(self.checks), 'video')}, {self.num_unusable:,} unusable; "
            f"{counted(self.num_known, 'was known', 'were known')} from an earlier call"
        )
        return "\n".join(lines)


@dataclass(frozen=True)
class CheckLog:
    """The checks that are kept in ``folder``, as a call with one setting uses them. The caller holds the lock.

    ``quick``: whether the call makes quick checks. A quick call also accepts the lines of full
    checks. A full call accepts no line of a quick check.
    ``limit_seconds``: the time limit of the call. A video that hung under a shorter limit is
    checked again.
    """

    folder: CheckDir
    quick: bool
    limit_seconds: float

    def known(self, paths: Sequence[str]) -> dict[str, VideoCheck]:
        """Return the earlier checks of ``paths`` that still hold, and delete the lines that do not.

        A line holds as long as its file keeps its size and its time of change. Lines of other
        videos stay.
        """
        asked = set(paths)
        names = [field.name for field in fields(VideoCheck) if field.name != "state"]
        with understanding(self.folder.videos_jsonl):
            cut_jsonl(
                self.folder.videos_jsonl,
                lambda line: line["path"] not in asked or self._holds(line),
            )
            return {
                line["path"]: VideoCheck(**{name: line[name] for name in names})
                for line in read_jsonl(self.folder.videos_jsonl)
                if line["path"] in asked
            }

    def add(self, check: VideoCheck) -> None:
        """Append the line of ``check``, with the size and the time of change of its file."""
        values = asdict(check)
        # A file that changed while it was decoded is checked again.
        state = values.pop("state") or _state_of(check.path)
        append_jsonl(self.folder.videos_jsonl, {**values, "quick": self.quick, **state})

    def write_quarantine(self, checks: Iterable[VideoCheck], root: Path) -> None:
        """Write the names of the videos that training cannot use, sorted, a line each; see ``Root.name``."""
        base = Root(root)
        lines = sorted(base.name(check.path) for check in checks if not check.is_usable)
        atomic_write_text(self.folder.quarantine_txt, "".join(f"{line}\n" for line in lines))

    def _holds(self, line: Mapping[str, Any]) -> bool:
        if line["kind"] in PASSING_KINDS:
            return False
        if line["kind"] == "hung" and line["seconds"] < self.limit_seconds:
            return False
        # A full check decodes what a quick check did not.
        if line["quick"] and not self.quick:
            return False
        # Older versions counted only the first and the last image of a folder in a quick check.
        if line["quick"] and line["frames"] <= 2 and line["duration_seconds"] is None:
            return False
        return all(line[name] == value for name, value in _state_of(line["path"]).items())


def check_in_folder(
    folder: CheckDir,
    paths: Sequence[str],
    root: Path,
    quick: bool,
    num_processes: int,
    limit_seconds: float,
) -> CheckSummary:
    """Check the videos at ``paths`` that no earlier call has checked. Write all results into ``folder``.

    The quarantine has paths relative to ``root``. The other arguments are those of `check_videos`. Raises
    InputError if another process works in the folder, or if no process can start.
    """
    with folder.locked(), _processes_that_cannot_start(folder):
        log = CheckLog(folder, quick, limit_seconds)
        checks = log.known(paths)
        num_known = len(checks)
        checking = check_videos(
            [path for path in paths if path not in checks],
            quick=quick,
            num_processes=num_processes,
            limit_seconds=limit_seconds,
        )
        # `closing` ends the checking processes, also after Ctrl-C.
        bar = progress_bar(len(paths), " videos", initial=num_known)
        with bar, closing(checking):
            for found in checking:
                log.add(found)
                checks[found.path] = found
                bar.update()
        ordered = [checks[path] for path in paths]
        log.write_quarantine(ordered, root)
    return CheckSummary(ordered, num_known)


@contextmanager
def _processes_that_cannot_start(folder: CheckDir) -> Iterator[None]:
    """Turn the error of processes that cannot start into an InputError that says how to continue."""
    try:
        yield
    except BrokenProcessPool as error:
        again = "then give the same command again, it checks the rest"
        raise InputError([f"{folder.root}: {CANNOT_START}, {again}"]) from error


def _state_of(path: str) -> dict[str, int | None]:
    """Return the size and the time of change of a video; None for both if there is no file."""
    try:
        stamp = stamp_of(path)
    # A path with a NUL character raises ValueError.
    except (OSError, ValueError):
        return {"bytes": None, "mtime_ns": None}
    return {"bytes": stamp.size_bytes, "mtime_ns": stamp.mtime_ns}
