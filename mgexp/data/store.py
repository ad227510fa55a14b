"""The clip store: intra-coded copies of videos at one or more short sides, and a manifest of them.

    <store>/store.json              how the copies are encoded
    <store>/manifest.jsonl          a line per video: its size, its time of change, and its copies, or why none
    <store>/<short side>/<path>     the copy, an ordinary .mp4 file; the path is that in the root of the videos

In a long-GOP file few frames cost more than their share, since each refers to others; in a copy every frame
stands alone, and a small copy has few pixels. So the cost of loading follows
frames x pixels, as that of training does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mgexp.errors import InputError
from mgexp.record.files import is_file, read_json, read_jsonl, sha256_of


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
