"""What checking leaves in a folder: a line for each video, and the quarantine; a second call goes on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mgexp.data.check import VideoCheck
from mgexp.data.quarantine import quarantine_text
from mgexp.record.files import append_jsonl, atomic_write_text, cut_jsonl, read_jsonl
from mgexp.record.run_dir import CheckDir

FIELDS = tuple(field.name for field in fields(VideoCheck))


@dataclass(frozen=True)
class CheckLog:
    """Checks made with one setting, in ``folder``; its lock must be held.

    ``quick``: a line of a quick check answers a quick call only, one of a full check both.
    ``limit_seconds``: a video that hung is checked again where this is more than it was given.
    """

    folder: CheckDir
    quick: bool
    limit_seconds: float

    def known(self, paths: Sequence[str]) -> dict[str, VideoCheck]:
        """The checks of ``paths`` that still hold; lines that do not are deleted.

        A line holds while its file has the size and the time of change that it had.
        """
        asked = set(paths)
        cut_jsonl(
            self.folder.videos_jsonl, lambda line: line["path"] not in asked or self._holds(line)
        )
        lines = read_jsonl(self.folder.videos_jsonl)
        return {line["path"]: _check(line) for line in lines if line["path"] in asked}

    def add(self, check: VideoCheck) -> None:
        """Appends a line."""
        line = {**asdict(check), "quick": self.quick, **_state_of(check.path)}
        append_jsonl(self.folder.videos_jsonl, line)

    def write_quarantine(self, checks: Iterable[VideoCheck], root: Path) -> None:
        """Lists the videos that training cannot use."""
        unusable = (check.path for check in checks if not check.is_usable)
        atomic_write_text(self.folder.quarantine_txt, quarantine_text(unusable, root))

    def _holds(self, line: Mapping[str, Any]) -> bool:
        if line["kind"] == "crashed":  # perhaps for want of memory: ask again
            return False
        if line["kind"] == "hung" and line["seconds"] < self.limit_seconds:
            return False
        if line["quick"] and not self.quick:
            return False
        return all(line[name] == value for name, value in _state_of(line["path"]).items())


def _state_of(path: str) -> dict[str, int | None]:
    """Size and time of change, None where there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 (paths are text everywhere in lists)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return {"bytes": None, "mtime_ns": None}
    return {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns}


def _check(line: Mapping[str, Any]) -> VideoCheck:
    return VideoCheck(**{name: line[name] for name in FIELDS})
