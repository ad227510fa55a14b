"""The clip store: intra-coded copies of videos at one or more short sides, a manifest, and their reader.

    <store>/store.json              how the copies are encoded
    <store>/manifest.jsonl          a line per video: its size, its time of change, its copies
    <store>/<short side>/<path>     a copy, an ordinary .mp4 file; <path> is the path below the root of the videos

In a copy every frame is coded by itself, and a small copy has few pixels. So the cost of loading follows frames ×
pixels, as the cost of training does.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mgexp.errors import InputError
from mgexp.run.files import is_file, iter_jsonl, read_json
from mgexp.run.folder import Folder, Inside
from mgexp.video.frame_folder import is_image
from mgexp.video.paths import Root
from mgexp.video.reader import (
    DEFAULT_FRAMES_FPS,
    Cut,
    Frames,
    Opener,
    Size,
    Times,
    Video,
    VideoError,
    whole,
)

GONE = (FileNotFoundError, NotADirectoryError)
"""Errors of a video that is not there. With another error, as in a closed folder, nobody knows whether it is."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a video: its size in pixels and in bytes."""

    height: int
    width: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Stamp:
    """The size (of a folder: of its images) and the time of last change, which tell whether it changed."""

    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class StoredVideo:
    """A line of the manifest: the video at ``path``, relative to the root, and its copies by level.

    ``height`` and ``width``: size of the displayed picture; its copies are upright. ``failure`` says why there is
    no copy. Then all numbers are 0, except in the stamp. ``is_folder``: it is a folder of images.
    """

    path: str
    stamp: Stamp
    num_frames: int
    duration_seconds: float
    height: int
    width: int
    levels: Mapping[int, Copy]
    failure: str | None = None
    is_folder: bool = False

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> StoredVideo:
        """Read a line of the manifest. Raises KeyError or TypeError if it is not such a line."""
        levels = {
            int(level): Copy(copy["height"], copy["width"], copy["size_bytes"])
            for level, copy in line["levels"].items()
        }
        # Older versions also wrote a sum of the content into the stamp, and no ``is_folder``.
        return cls(
            *(line["path"], Stamp(line["stamp"]["size_bytes"], line["stamp"]["mtime_ns"])),
            *(line["num_frames"], line["duration_seconds"], line["height"], line["width"]),
            levels,
            line["failure"],
            line.get("is_folder", False),
        )


# A large data set has 240,000 of them, so they are small.
@dataclass(frozen=True, slots=True)
class CopiedVideo:
    """What reading a video from its copies needs: the stamp, the duration and the displayed size of the video.

    ``short_sides``: (level, pixels of the short side of its copy), ascending by pixels. The copy of a small video
    may be smaller than its level.
    """

    size_bytes: int
    mtime_ns: int
    duration_seconds: float
    size: Size
    short_sides: tuple[tuple[int, int], ...]
    is_folder: bool


class StoreDir(Folder):
    """The folder of a store."""

    settings_json = Inside("store.json")
    """How the copies are encoded."""
    manifest_jsonl = Inside("manifest.jsonl")
    """A line per video. If a video has several lines, the last one counts."""
    lock = Inside("lock")
    """Held by the process that fills the store."""

    def copy(self, level: int, path: str) -> Path:
        """Return where the copy of a video lies; ``path`` is relative to the root of the videos."""
        return self.root / str(level) / copy_name(path)

    def videos(self) -> Iterator[StoredVideo]:
        """Read the manifest, of which the last line of a video counts. Raises InputError if it is none."""
        if not is_file(self.settings_json):
            raise InputError([f"{self.root} is no clip store, it has no {self.settings_json.name}"])
        # Nothing of the settings is needed here, but a damaged file must not pass for a store.
        read_json(self.settings_json)
        try:
            yield from map(StoredVideo.from_line, iter_jsonl(self.manifest_jsonl))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"{self.manifest_jsonl}: a line is not of a clip store ({error!r})"
            raise InputError([problem]) from error

    def read(self) -> dict[str, StoredVideo]:
        return {video.path: video for video in self.videos()}

    def copied(self) -> dict[str, CopiedVideo]:
        """Read the videos with copies, by path. Raises InputError like ``videos``."""
        manifest = self.manifest_jsonl
        status = os.stat(manifest) if is_file(manifest) else None
        return self._copied_at(status and (status.st_mtime_ns, status.st_size))

    # Lists and the index of a start ask for them, and reading a large manifest takes seconds.
    @lru_cache(maxsize=1)  # noqa: B019 (a store is a path)
    def _copied_at(self, stamp: tuple[int, int] | None) -> dict[str, CopiedVideo]:
        # Most videos have one of a few sizes, so these are kept once.
        same: dict[Any, Any] = {}
        copied: dict[str, CopiedVideo] = {}
        for video in self.videos():
            # A later line replaces an earlier one, also if the video has no copies any more.
            copied.pop(video.path, None)
            sides = [(level, min(copy.height, copy.width)) for level, copy in video.levels.items()]
            if sides:
                size = (video.height, video.width)
                short_sides = tuple(sorted(sides, key=lambda pair: (pair[1], pair[0])))
                copied[video.path] = CopiedVideo(
                    size_bytes=video.stamp.size_bytes,
                    mtime_ns=video.stamp.mtime_ns,
                    duration_seconds=video.duration_seconds,
                    size=same.setdefault(size, size),
                    short_sides=same.setdefault(short_sides, short_sides),
                    is_folder=video.is_folder,
                )
        return copied


def copy_name(path: str) -> str:
    return path if path.lower().endswith(".mp4") else f"{path}.mp4"


def level_size(height: int, width: int, level: int) -> tuple[int, int]:
    """Return height and width of the copy at ``level`` of a picture of ``height`` x ``width``.

    A copy is never larger than its video. Both numbers are even, since 4:2:0 halves the resolution of colours: a
    picture of an odd size loses a line or a column.
    """
    factor = min(1.0, level / min(height, width))

    # The nearest even number, at least 2, and no more than the picture has.
    def even(pixels: int) -> int:
        return max(2, min(2 * round(pixels * factor / 2), pixels - pixels % 2))

    return even(height), even(width)


def distinct_levels(height: int, width: int, levels: tuple[int, ...]) -> tuple[int, ...]:
    """Return the levels that a picture needs. If several of them have the same size, return only the smallest."""
    # From large to small, so that the smallest level of a size is the one that stays.
    descending = sorted(set(levels), reverse=True)
    by_size = {level_size(height, width, level): level for level in descending}
    return tuple(sorted(by_size.values()))


def stamp_of(path: str) -> Stamp:
    """Read size and time of last change of a video. Raises OSError."""
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        return Stamp(status.st_size, status.st_mtime_ns)
    with os.scandir(path) as entries:
        size_bytes = sum(entry.stat().st_size for entry in entries if is_image(entry.name))
    return Stamp(size_bytes, status.st_mtime_ns)


def is_gone(path: str) -> bool:
    try:
        os.stat(path)
    except OSError as error:
        return isinstance(error, GONE)
    return False


class StoreIndex:
    """An ``Opener`` that reads a video from its copies in a store, or from its own file if it has no copies.

    ``root`` is the folder that the paths of the manifest are relative to. ``open_file`` opens copies and videos.
    Copies of folders of images play at ``frames_fps`` frames per second, whatever rate they were made with.
    Raises InputError where ``store`` is no store.
    """

    def __init__(
        self,
        store: StoreDir,
        root: Path,
        open_file: Opener,
        frames_fps: float = DEFAULT_FRAMES_FPS,
    ) -> None:
        self.store = store
        self.root = Root(root)
        self.open_file = open_file
        self.folder_speed = frames_fps / DEFAULT_FRAMES_FPS
        self._copied = store.copied()

    def entry(self, path: str) -> CopiedVideo | None:
        """Return what the store has of ``path``; None if the video changed. One that is gone has not."""
        entry = self._copied.get(self.root.name(path))
        if entry is None:
            return None
        # This is asked at each opening, because a video that was replaced must not be read from old copies.
        try:
            status = os.stat(path)
        except GONE:
            return entry
        except OSError:
            return None
        # To add up the images of a folder for each clip would take too long, so its time must do.
        if entry.size_bytes != status.st_size and not stat.S_ISDIR(status.st_mode):
            return None
        return entry if entry.mtime_ns == status.st_mtime_ns else None

    def __call__(self, path: str) -> AbstractContextManager[Video]:
        """Open the video. Which copy is needed is known only when frames are asked for. Raises VideoError."""
        entry = self.entry(path)
        if entry is None:
            return self.open_file(path)
        is_folder = entry.is_folder or os.path.isdir(path)
        speed = self.folder_speed if is_folder else 1.0
        return nullcontext(_Copies(self, path, entry, speed))


@dataclass(frozen=True)
class _Copies:
    """An open video with copies. ``speed``: how much faster than in its copies the video plays.

    The size and the duration are those of the video itself, so random draws are the same with and without a store.
    (The size of a folder of images of several sizes is that of its first image.)
    """

    index: StoreIndex
    path: str
    entry: CopiedVideo
    speed: float

    @property
    def duration_seconds(self) -> float:
        return self.entry.duration_seconds / self.speed

    def frames_at(
        self, times_seconds: Times, short_side: float | None = None, cut: Cut = whole
    ) -> Frames:
        """Take the frames from the smallest copy that is sharp enough. Raises VideoError if it is damaged."""
        size, level = self.entry.size, None
        if short_side is not None:
            level = choose_level(self.entry.short_sides, min(size), short_side)
        if level is None:
            if not os.path.exists(self.path):
                problem = "is gone, and its copies have fewer pixels than this clip needs"
                raise VideoError(self.path, problem)
            with self.index.open_file(self.path) as video:
                return video.frames_at(times_seconds, None, cut)
        copy = self.index.store.copy(level, self.index.root.name(self.path))
        times = [self.speed * time for time in times_seconds]
        region = cut(size)
        with self.index.open_file(str(copy)) as video:
            frames = video.frames_at(times, None, lambda shown: region.on(size, shown))
        return Frames(frames.pixels, size, region)


def choose_level(
    short_sides: Sequence[tuple[int, int]], source_short_side: int, needed: float
) -> int | None:
    """Choose the smallest level with a short side of ``needed`` pixels or more.

    If there is none, choose the largest level if it is as large as the video. Otherwise return None, which stands
    for the video itself. ``short_sides``: (level, pixels of the short side of its copy), ascending.
    """
    for level, pixels in short_sides:
        if pixels >= needed:
            return level
    level, pixels = short_sides[-1]
    # Copies have even sizes, so that of a video of an odd size is a pixel smaller.
    return level if pixels >= source_short_side - source_short_side % 2 else None
