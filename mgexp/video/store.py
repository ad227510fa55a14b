"""Reads videos from a clip store: the smallest copy that is sharp enough, else the video itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgexp.errors import InputError
from mgexp.run.files import is_file, read_json, read_jsonl, sha256_of
from mgexp.video.paths import Root
from mgexp.video.reader import Picture, ReaderOpener, SourceVideo, Video, open_video
from mgexp.video.region import RegionOf, whole


@dataclass(frozen=True)
class Copy:
    """A copy of a video: its size in pixels and in bytes."""

    height: int
    width: int
    size_bytes: int


@dataclass(frozen=True)
class Stamp:
    """What tells whether a file has changed; ``sha256`` of its content, None where nobody asked for it."""

    size_bytes: int
    mtime_ns: int
    sha256: str | None = None

    def is_same_file(self, other: Stamp) -> bool:
        """Whether size and time of last change are the same."""
        return (self.size_bytes, self.mtime_ns) == (other.size_bytes, other.mtime_ns)


@dataclass(frozen=True)
class StoredVideo:
    """A line of the manifest: the video at ``path``, relative to the root, and its copies by level.

    ``height`` and ``width`` are of the picture as it is displayed, which is the decoded one turned by
    ``quarter_turns``, counterclockwise; the copies are turned already. ``failure`` says why there is no copy; all
    but the stamp is 0 then.
    """

    path: str
    stamp: Stamp
    num_frames: int
    duration_seconds: float
    height: int
    width: int
    quarter_turns: int
    levels: Mapping[int, Copy]
    failure: str | None = None

    @property
    def short_side(self) -> int:
        """Pixels of the shorter side of the picture."""
        return min(self.height, self.width)

    def line(self) -> dict[str, Any]:
        """The record in the manifest."""
        fps = self.num_frames / self.duration_seconds if self.duration_seconds else 0.0
        levels = {str(level): asdict(copy) for level, copy in self.levels.items()}
        return {
            **self.__dict__,
            "stamp": asdict(self.stamp),
            "levels": levels,
            "fps": round(fps, 3),
        }

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> StoredVideo:
        """The video of a record; raises KeyError or TypeError where it is none."""
        values = {name: line[name] for name in cls.__dataclass_fields__}
        values["stamp"] = Stamp(**line["stamp"])
        values["levels"] = {int(level): Copy(**copy) for level, copy in line["levels"].items()}
        return cls(**values)


@dataclass(frozen=True)
class StoreDir:
    """The folder of a store."""

    root: Path

    @property
    def settings_json(self) -> Path:
        """How the copies are encoded."""
        return self.root / "store.json"

    @property
    def manifest_jsonl(self) -> Path:
        """A line per video; of several for one video the last holds."""
        return self.root / "manifest.jsonl"

    @property
    def lock(self) -> Path:
        """Held by the process that fills the store."""
        return self.root / "lock"

    def copy(self, level: int, path: str) -> Path:
        """The copy of the video at ``path``, relative to the root of the videos."""
        return self.root / str(level) / copy_name(path)

    def read(self) -> dict[str, StoredVideo]:
        """The manifest, by path. Raises InputError where there is no store, or a line is not of a store."""
        if not is_file(self.settings_json):
            remedy = "give the folder that tools/prepare_data.py made"
            raise InputError(
                [f"{self.root} is no clip store, it has no {self.settings_json.name}: {remedy}"]
            )
        read_json(self.settings_json)
        try:
            videos = [StoredVideo.from_line(line) for line in read_jsonl(self.manifest_jsonl)]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            remedy = "remove the line and run tools/prepare_data.py again"
            problem = f"{self.manifest_jsonl}: a line is not of a clip store ({error!r}): {remedy}"
            raise InputError([problem]) from error
        return {video.path: video for video in videos}


def copy_name(path: str) -> str:
    """The name of a copy, which is an mp4 file whatever the video is."""
    return path if path.lower().endswith(".mp4") else f"{path}.mp4"


def level_size(height: int, width: int, level: int) -> tuple[int, int]:
    """Height and width, even, of the copy at ``level`` of a picture of ``height`` x ``width``; never larger.

    Even, since 4:2:0 halves the colours' resolution: of an odd picture a line or column less.
    """
    short_side = min(height, width)
    factor = min(1.0, level / short_side)
    return _even(height, factor), _even(width, factor)


def distinct_levels(height: int, width: int, levels: tuple[int, ...]) -> tuple[int, ...]:
    """The levels that a picture needs: of those as large as itself only the smallest."""
    ascending = sorted(set(levels))
    sizes = [level_size(height, width, level) for level in ascending]
    return tuple(
        level for index, level in enumerate(ascending) if sizes[index] not in sizes[:index]
    )


def stamp_of(path: str, with_hash: bool) -> Stamp:
    """Size, time of last change, and, where asked for, SHA-256 of a file. Raises OSError."""
    status = os.stat(path)  # noqa: PTH116 (called for each clip)
    return Stamp(status.st_size, status.st_mtime_ns, sha256_of(Path(path)) if with_hash else None)


def _even(pixels: int, factor: float) -> int:
    nearest = 2 * round(pixels * factor / 2)
    return max(2, min(nearest, pixels - pixels % 2))


@dataclass(frozen=True)
class Entry:
    """What reading needs of a stored video; ``short_sides``: (level, pixels of that copy's short side), ascending.

    For ``height`` and ``width`` see ``StoredVideo``.
    """

    size_bytes: int
    mtime_ns: int
    duration_seconds: float
    height: int
    width: int
    short_sides: tuple[tuple[int, int], ...]


class StoreIndex:
    """The copies of a store, by the path of the video; an opener, see ``mgexp.video.reader.Opener``.

    ``root`` is the folder that the paths of the manifest are relative to; ``open_reader`` opens copies and
    videos. Raises InputError where ``store`` is no store.
    """

    def __init__(self, store: StoreDir, root: Path, open_reader: ReaderOpener = open_video) -> None:
        self._store = store
        self._root = Root(root)
        self._open_reader = open_reader
        self._entries = _entries(store.read())

    def __len__(self) -> int:
        """Videos with copies."""
        return len(self._entries)

    def entry(self, path: str) -> Entry | None:
        """The copies of the video at the absolute ``path``; None if there is none of the file as it is now."""
        entry = self._entries.get(self._root.relative(path) or "")
        try:
            status = os.stat(path)  # noqa: PTH116 (called for each clip)
        except OSError:
            return None
        if entry is None or (status.st_size, status.st_mtime_ns) != (
            entry.size_bytes,
            entry.mtime_ns,
        ):
            return None
        return entry

    @contextmanager
    def __call__(self, path: str) -> Iterator[Video]:
        """The open video; a level is chosen when frames are asked for. Raises VideoError."""
        entry = self.entry(path)
        if entry is not None:
            name = self._root.relative(path) or ""
            yield _StoredVideo(self._store, name, path, entry, self._open_reader)
            return
        with self._open_reader(path) as reader:
            yield SourceVideo(reader)


class _StoredVideo:
    """A video with copies; it says what the manifest says, so that draws are the same with a store and without."""

    def __init__(
        self, store: StoreDir, name: str, path: str, entry: Entry, open_reader: ReaderOpener
    ) -> None:
        self._store = store
        self._name = name
        self._path = path
        self._entry = entry
        self._open_reader = open_reader

    @property
    def duration_seconds(self) -> float:
        """Seconds from the first frame to the end of the last."""
        return self._entry.duration_seconds

    def frames_at(
        self,
        times_seconds: Sequence[float] | NDArray[np.float64],
        short_side: float,
        region_of: RegionOf = whole,
    ) -> Picture:
        """From the copy that ``choose_level`` takes. Raises VideoError where that copy is missing or damaged."""
        entry = self._entry
        level = choose_level(entry.short_sides, min(entry.height, entry.width), short_side)
        if level is None:
            with self._open_reader(self._path) as reader:
                return SourceVideo(reader).frames_at(times_seconds, short_side, region_of)
        size = (entry.height, entry.width)
        with self._open_reader(str(self._store.copy(level, self._name))) as reader:
            frames = reader.frames_at(times_seconds, lambda copy: region_of(size).on(size, copy))
        return Picture(frames, size, str(level))


def choose_level(
    short_sides: Sequence[tuple[int, int]], source_short_side: int, needed: float
) -> int | None:
    """The smallest level with a short side of ``needed`` pixels or more.

    Where none has: the largest, if that is as large as the video; else None, for the video itself.
    ``short_sides``: (level, pixels of that copy), ascending. A video of an odd size has copies of a pixel less:
    those are as large as it.
    """
    for level, pixels in short_sides:
        if pixels >= needed:
            return level
    level, pixels = short_sides[-1]
    return level if pixels >= source_short_side - source_short_side % 2 else None


def _entries(videos: Mapping[str, StoredVideo]) -> dict[str, Entry]:
    return {video.path: _entry(video) for video in videos.values() if video.levels}


def _entry(video: StoredVideo) -> Entry:
    short_sides = ((level, min(copy.height, copy.width)) for level, copy in video.levels.items())
    return Entry(
        video.stamp.size_bytes,
        video.stamp.mtime_ns,
        video.duration_seconds,
        video.height,
        video.width,
        tuple(sorted(short_sides, key=lambda pair: (pair[1], pair[0]))),
    )
