"""What a clip store will take, from a sample of it: bytes on the disk, and seconds of encoding."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mgexp.data.records import evenly_spaced
from mgexp.data.store import StoreDir, StoredVideo
from mgexp.data.store_fill import Order, copy_video
from mgexp.errors import InputError
from mgexp.record.files import json_line, write_json

NUM_SAMPLED = 8
"""Videos of a sample. Assumption: enough for the mean, few enough for a minute."""


@dataclass(frozen=True)
class Estimate:
    """What all videos will take. ``level_bytes`` by short side; ``encode_seconds`` of one process.

    Copies take so many bytes per byte of their videos as in the sample of ``num_sampled``, of which ``failures``
    (path, reason) have none.
    """

    num_videos: int
    source_bytes: int
    num_sampled: int
    level_bytes: dict[int, int]
    encode_seconds: float
    failures: tuple[tuple[str, str], ...]

    @property
    def total_bytes(self) -> int:
        """Of all levels."""
        return sum(self.level_bytes.values())


@dataclass(frozen=True)
class Sample:
    """A store of some videos in a temporary folder."""

    store: StoreDir
    videos: tuple[StoredVideo, ...]
    encode_seconds: float

    @property
    def copied(self) -> tuple[StoredVideo, ...]:
        """The videos that have copies."""
        return tuple(video for video in self.videos if video.failure is None)


@contextmanager
def sample_store(order: Order, paths: Sequence[str], num: int = NUM_SAMPLED) -> Iterator[Sample]:
    """Copies of ``num`` evenly spaced videos, in a folder that is gone afterwards.

    Raises InputError where none of them can be copied, OSError where the temporary folder is full.
    """
    with tempfile.TemporaryDirectory(prefix="store_plan_") as folder:
        store = StoreDir(Path(folder))
        write_json(store.settings_json, {})
        start = time.perf_counter()
        videos = tuple(copy_video(store, order, path) for path in evenly_spaced(paths, num))
        seconds = time.perf_counter() - start
        lines = [json_line(video.line()) for video in videos]
        store.manifest_jsonl.write_text("".join(lines), encoding="utf-8")
        sample = Sample(store, videos, seconds)
        if not sample.copied:
            reasons = [f"{video.path}: {video.failure}" for video in videos]
            raise InputError(["none of the sample can be copied, so there is no plan", *reasons])
        yield sample


def estimate(order: Order, paths: Sequence[str], sample: Sample) -> Estimate:
    """From the sample to all videos at ``paths``, in proportion to the bytes of the videos."""
    source_bytes = sum((order.root / path).stat().st_size for path in paths)
    share = source_bytes / sum(video.stamp.size_bytes for video in sample.copied)
    levels = dict.fromkeys(sorted(set(order.levels), reverse=True), 0)
    for video in sample.copied:
        for level, copy in video.levels.items():
            levels[level] += copy.size_bytes
    return Estimate(
        num_videos=len(paths),
        source_bytes=source_bytes,
        num_sampled=len(sample.videos),
        level_bytes={level: round(total * share) for level, total in levels.items()},
        encode_seconds=sample.encode_seconds * share,
        failures=tuple((video.path, video.failure) for video in sample.videos if video.failure),
    )


def disk_table(found: Estimate, num_processes: int, free_bytes: int) -> str:
    """Lines: each level, all of them, the time to encode them, and a warning where they do not fit."""
    rows = [
        ("videos", found.source_bytes),
        *((f"short side {level}", size) for level, size in found.level_bytes.items()),
        ("store in all", found.total_bytes),
    ]
    encoding = _duration(found.encode_seconds / num_processes)
    lines = [
        f"{found.num_videos} videos, from a sample of {found.num_sampled}:",
        *(f"  {name:<16} {size / 10**9:10.3f} GB" for name, size in rows),
        f"  encoding takes about {encoding} with {num_processes} processes",
    ]
    if found.total_bytes > free_bytes:
        lines.append(f"  it does not fit: {free_bytes / 10**9:.3f} GB are free there")
    return "\n".join(lines)


def _duration(seconds: float) -> str:
    """In the unit that people would say."""
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"
