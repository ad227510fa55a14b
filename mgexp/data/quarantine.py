"""The quarantine: a list of videos that are not used, because checking found them unusable."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from mgexp.data.files import Root
from mgexp.data.records import VideoList


def without_quarantined(videos: VideoList, quarantine: Path, root: Path) -> VideoList:
    """``videos`` with those of the file ``quarantine`` counted as missing.

    The file holds a path per line, relative to ``root`` or absolute, in UTF-8; of videos that are not in
    the list it may hold any number. Raises nothing: what is wrong with the file is a problem of the list.
    """
    try:
        lines = quarantine.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        remedy = "make it with tools/check_data.py, or set DATA.QUARANTINE ''"
        problem = f"DATA.QUARANTINE {quarantine.absolute()} cannot be read ({error}): {remedy}"
        return replace(videos, problems=(*videos.problems, problem))
    inside = Root(root)
    shut_out = {inside.path(line.strip()) for line in lines if line.strip()}
    return replace(
        videos,
        records=tuple(record for record in videos.records if record.path not in shut_out),
        missing=(
            *videos.missing,
            *(record.path for record in videos.records if record.path in shut_out),
        ),
    )


def quarantine_text(paths: Iterable[str], root: Path) -> str:
    """The file: a line per path, sorted; relative to ``root`` where it lies there, so that a set may move."""
    base = Root(root).folder + os.sep
    lines = (path.removeprefix(base) for path in paths)
    return "".join(f"{line}\n" for line in sorted(lines))
