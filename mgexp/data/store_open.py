"""Reads videos from a clip store: the smallest copy that is sharp enough, else the video itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mgexp.data.decode import ReaderOpener, open_video
from mgexp.data.files import Root
from mgexp.data.opening import Picture, SourceVideo, Video
from mgexp.data.region import RegionOf, whole
from mgexp.data.store import StoreDir, StoredVideo


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
    """The copies of a store, by the path of the video; an opener, see ``mgexp.data.opening.Opener``.

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
