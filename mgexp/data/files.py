"""The files of a data set: lists to read, and videos that must lie in the root folder and exist."""

from __future__ import annotations

import csv
import io
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mgexp.data.problems import ProblemLog
from mgexp.errors import listed
from mgexp.record.files import is_file, is_folder, is_there

STAT_THREADS = 16
"""Threads that look for files: they wait for the disk, not for the processor. Assumption: 16 requests at
once hide the latency of a network disk. Local disk, 240,000 files: 0.4 s, with one thread 0.3 s (measured)."""
STAT_CHUNK = 500
"""Files looked for by one task of a thread."""

NO_COLUMN = "column that is not there"
DAMAGED_TABLE = "table that cannot be read"


class Root:
    """The folder that all videos lie in, under its own name and under that without links.

    ``allow_outside``: that they may also lie anywhere else (DATA.ALLOW_OUTSIDE).
    """

    def __init__(self, folder: Path, allow_outside: bool = False) -> None:
        self.allow_outside = allow_outside
        self.folder = os.path.normpath(folder.absolute())
        folders = (self.folder, os.path.realpath(folder))
        self._inside = tuple(name.rstrip(os.sep) + os.sep for name in folders)

    def path(self, name: str) -> str | None:
        """The absolute path of ``name``, relative to the folder or absolute; None if it may not lie there.

        Links in it are not looked at: see ``leading_out``.
        """
        path = os.path.normpath(os.path.join(self.folder, name))  # noqa: PTH118 (240,000 lines)
        return path if self.allow_outside or path.startswith(self._inside) else None

    def relative(self, path: str) -> str | None:
        """The absolute ``path``, as lists of videos give it, relative to the folder; None if it is outside."""
        for prefix in self._inside:
            if path.startswith(prefix):
                return path[len(prefix) :]
        return None


def read_text(path: Path, what: str = "list file") -> tuple[str, list[str]]:
    """The text of a UTF-8 file, with or without a byte order mark, and what is wrong with the file."""
    if not is_file(path):
        problem = "is not a file" if is_there(path) else "does not exist"
        return "", [f"{what} {path.absolute()} {problem}: give the path of a text file"]
    try:
        return path.read_bytes().decode("utf-8-sig"), []
    except (OSError, UnicodeDecodeError) as error:
        remedy = "make it a readable UTF-8 text file"
        return "", [f"{what} {path} cannot be read ({error}): {remedy}"]


def read_list_text(list_path: Path, root: Path) -> tuple[str, list[str]]:
    """The text of a list, and what is wrong with the list file and with the root folder of its videos."""
    text, problems = read_text(list_path)
    return text, [*problems, *root_problems(root)]


def root_problems(root: Path) -> Iterator[str]:
    """A root folder that is none."""
    if not is_folder(root):
        what = "is not a folder" if is_there(root) else "does not exist"
        remedy = "set DATA.PATH_PREFIX to the folder that the paths of the lists are relative to"
        yield f"root folder of the videos {root.absolute()} {what}: {remedy}"


def csv_rows(
    text: str, list_path: Path, columns: Sequence[str], log: ProblemLog
) -> Iterator[tuple[str, dict[str, str]]]:
    """(place, row) of each line that is not blank; cells without spaces around them, "" where a row is short.

    The first line names the columns, in any order, more of them than ``columns`` or not. ``log`` takes
    NO_COLUMN for each of ``columns`` that is missing (there are no rows then), and DAMAGED_TABLE.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
    try:
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        missing = [name for name in columns if name not in reader.fieldnames]
        for name in missing:
            log.add(NO_COLUMN, f"{list_path}:1", name)
        for row in () if missing else reader:
            cells = {name: row[name].strip() for name in reader.fieldnames}
            if any(cells.values()):
                yield f"{list_path}:{reader.line_num}", cells
    except csv.Error as error:
        log.add(DAMAGED_TABLE, f"{list_path}:{reader.line_num}", str(error))


def leading_out(paths: Sequence[str], folder: Path) -> list[str]:
    """Those of ``paths``, below ``folder`` by name, that symbolic links in it lead out of it.

    A link to the folder itself is none: it is what the user named.
    """
    inside = os.path.realpath(folder).rstrip(os.sep) + os.sep
    folders = {path: os.path.realpath(path) for path in {*map(os.path.dirname, paths)}}
    outside = {path for path, real in folders.items() if not f"{real}{os.sep}".startswith(inside)}

    def leads_out(path: str) -> bool:
        if os.path.islink(path):  # noqa: PTH114 (240,000 files)
            return not os.path.realpath(path).startswith(inside)
        return os.path.dirname(path) in outside  # noqa: PTH120

    return [path for path, out in zip(paths, _in_threads(leads_out, paths), strict=True) if out]


def links_problem(outside: Sequence[str], root: Path) -> Iterator[str]:
    """Videos that links lead out of the folder that they should lie in."""
    if outside:
        yield (
            f"{len(outside)} videos lie outside of {root.absolute()} by symbolic links, such as "
            f"{listed(outside, 1)}: if you trust who made them, set DATA.ALLOW_OUTSIDE True, else put the "
            "videos there"
        )


def are_usable(paths: Sequence[str]) -> list[bool]:
    """For each path, whether it is a file that is not empty."""
    return _in_threads(_is_usable, paths)


def _in_threads(asks: Callable[[str], bool], paths: Sequence[str]) -> list[bool]:
    chunks = [paths[start : start + STAT_CHUNK] for start in range(0, len(paths), STAT_CHUNK)]
    with ThreadPoolExecutor(STAT_THREADS) as pool:
        found = pool.map(lambda chunk: [asks(path) for path in chunk], chunks)
        return [answer for chunk in found for answer in chunk]


def _is_usable(path: str) -> bool:
    try:
        status = os.stat(path)  # noqa: PTH116 (240,000 files)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size > 0
