"""Which videos a list file names, whatever their labels: for checking the files themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mgexp.data.files import Root
from mgexp.errors import InputError, listed

MAX_LISTED = 10
"""Lines with a problem that are listed; of the others only the number."""


def listed_paths(lists: Sequence[Path], root: Path, separator: str) -> tuple[str, ...]:
    """Absolute paths of the videos of all list files, each once, in their order.

    A line is a path, ``separator`` and a label, as ``mgexp.data.records.read_list`` reads it; the label is
    not looked at. Raises InputError that lists every file and line that cannot be understood, and every
    path outside ``root``.
    """
    problems: list[str] = []
    if not root.is_dir():
        problems.append(f"--root {root.absolute()} is not a folder: give that of the videos")
    inside = Root(root)
    paths: list[str] = []
    for list_path in lists:
        try:
            lines = list_path.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"list file {list_path} cannot be read: {error}")
            continue
        found = [_path_of(line.strip(), inside, separator) for line in lines]
        paths += [path for path in found if path]
        wrong = [number for number, path in enumerate(found, start=1) if path is None]
        problems += _line_problems(list_path, wrong, root, separator)
    if not paths and not problems:
        problems.append(f"{', '.join(map(str, lists))}: no line holds a video")
    if problems:
        raise InputError(problems)
    return tuple(dict.fromkeys(paths))


def _path_of(line: str, inside: Root, separator: str) -> str | None:
    """The absolute path, empty for a blank line, None where the line is not in order."""
    if not line:
        return ""
    name, found, _ = line.rpartition(separator)
    return inside.path(name.strip()) if found and name.strip() else None


def _line_problems(
    list_path: Path, wrong: Sequence[int], root: Path, separator: str
) -> Sequence[str]:
    if not wrong:
        return []
    numbers = listed([str(number) for number in wrong], MAX_LISTED)
    return [
        f"{list_path}, lines {numbers}: not path{separator}label with a path below "
        f"{root.absolute()}: correct them, --root or --separator"
    ]
