"""Lists of videos: text files with a ``path label`` line for each, the form that Kinetics users have."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

MAX_LISTED = 10
"""Problems of one kind that are listed; of the others only the number."""
STAT_THREADS = 16
"""Threads that look for files: they wait for the disk, not for the processor. Assumption: 16 requests at
once hide the latency of a network disk. Local disk, 240,000 files: 0.4 s, with one thread 0.3 s (measured)."""
STAT_CHUNK = 500
"""Files looked for by one task of a thread."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class VideoRecord:
    """A video file, by its absolute path, and its class, from 0."""

    path: str
    label: int


@dataclass(frozen=True)
class VideoList:
    """What a list file holds.

    ``records``: the videos that exist, in the order of the list. ``missing``: absolute paths of those that
    do not exist as files, or are empty files; the caller decides how many may be. ``problems``: what is
    wrong with the list itself, one message each.
    """

    records: tuple[VideoRecord, ...]
    missing: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def num_listed(self) -> int:
        """Videos in the list, there or not."""
        return len(self.records) + len(self.missing)


class _ProblemLog:
    """Problems by kind, each at a place; a kind lists its first ones and the number of the others."""

    def __init__(self, remedies: dict[str, str]) -> None:
        self.remedies = remedies
        self.places: dict[str, list[str]] = {kind: [] for kind in remedies}

    def add(self, kind: str, place: str, value: object) -> None:
        self.places[kind].append(f"{place}: {value!r}")

    def messages(self) -> Iterator[str]:
        for kind, places in self.places.items():
            for place in places[:MAX_LISTED]:
                yield f"{kind}, {place}: {self.remedies[kind]}"
            if len(places) > MAX_LISTED:
                yield f"{kind}: ... and {len(places) - MAX_LISTED} more"


def read_list(list_path: Path, root: Path, num_classes: int, separator: str = " ") -> VideoList:
    """The videos of a list file, one ``path label`` line each, with everything that is wrong with it.

    The line is split at the last ``separator``, so that paths may hold it too. Blank lines, Windows line
    ends and a UTF-8 byte order mark are fine. Paths are relative to ``root``, or absolute below it;
    labels are integers in [0, num_classes). Raises nothing: problems and missing videos are returned.
    """
    problems = [*_file_problems(list_path), *_root_problems(root)]
    if problems:
        return VideoList((), (), tuple(problems))
    try:
        lines = list_path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        problem = (
            f"list file {list_path} cannot be read ({error}): make it a readable UTF-8 text file"
        )
        return VideoList((), (), (problem,))
    log = _problem_log(root, num_classes, separator)
    listed = list(_parse(lines, list_path, root, num_classes, separator, log))
    problems = list(log.messages())
    if not listed and not problems:
        problems = [f"list file {list_path} is empty: write a 'path label' line for each video"]
    usable = _are_usable([record.path for record in listed])
    return VideoList(
        tuple(record for record, good in zip(listed, usable, strict=True) if good),
        tuple(record.path for record, good in zip(listed, usable, strict=True) if not good),
        tuple(problems),
    )


def evenly_spaced(records: Sequence[Item], num: int) -> tuple[Item, ...]:
    """``num`` of the records, evenly spaced over the list, its first one included; 0: all of them.

    All of them as well if there are fewer than ``num``.
    """
    if num == 0 or num >= len(records):
        return tuple(records)
    return tuple(records[position * len(records) // num] for position in range(num))


def _file_problems(list_path: Path) -> Iterator[str]:
    if not list_path.is_file():
        what = "is not a file" if list_path.exists() else "does not exist"
        yield f"list file {list_path.absolute()} {what}: give the path of a text file"


def _root_problems(root: Path) -> Iterator[str]:
    if not root.is_dir():
        what = "is not a folder" if root.exists() else "does not exist"
        remedy = "set DATA.PATH_PREFIX to the folder that the paths of the lists are relative to"
        yield f"root folder of the videos {root.absolute()} {what}: {remedy}"


def _problem_log(root: Path, num_classes: int, separator: str) -> _ProblemLog:
    form = f"write path{separator}label, or set DATA.PATH_LABEL_SEPARATOR, now {separator!r}"
    labels = f"labels are integers from 0 to {num_classes - 1}"
    return _ProblemLog(
        {
            "line without a label": form,
            "label that is no integer": labels,
            "label outside the classes": f"{labels}; correct it or MODEL.NUM_CLASSES, now {num_classes}",
            "path outside the root folder": "correct it, or set DATA.PATH_PREFIX to a folder that holds "
            f"all videos, now {root.absolute()}",
        }
    )


def _parse(
    lines: Sequence[str],
    list_path: Path,
    root: Path,
    num_classes: int,
    separator: str,
    log: _ProblemLog,
) -> Iterator[VideoRecord]:
    """The records of the lines that are in order; the others go to ``log``."""
    base = os.path.normpath(root.absolute())
    inside = tuple(folder.rstrip(os.sep) + os.sep for folder in (base, os.path.realpath(root)))
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if not stripped:
            continue
        place = f"{list_path}:{number}"
        name, found, label_text = stripped.rpartition(separator)
        label = _integer(label_text)
        path = os.path.normpath(os.path.join(base, name.strip()))  # noqa: PTH118 (240,000 lines)
        if not found or not name.strip():
            log.add("line without a label", place, stripped)
        elif label is None:
            log.add("label that is no integer", place, label_text)
        elif not 0 <= label < num_classes:
            log.add("label outside the classes", place, label)
        elif not path.startswith(inside):
            log.add("path outside the root folder", place, name)
        else:
            yield VideoRecord(path, label)


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text) else None


def _are_usable(paths: Sequence[str]) -> list[bool]:
    """For each path, whether it is a file that is not empty."""
    chunks = [paths[start : start + STAT_CHUNK] for start in range(0, len(paths), STAT_CHUNK)]
    with ThreadPoolExecutor(STAT_THREADS) as pool:
        found = pool.map(lambda chunk: [_is_usable(path) for path in chunk], chunks)
        return [usable for chunk in found for usable in chunk]


def _is_usable(path: str) -> bool:
    try:
        status = os.stat(path)  # noqa: PTH116 (240,000 files)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size > 0
