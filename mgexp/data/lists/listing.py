"""Which videos lists name, whatever their labels: for the tools that look at the files themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mgexp.data.files import Root, are_usable, leading_out, links_problem, read_text
from mgexp.errors import InputError, listed
from mgexp.record.files import is_folder
from mgexp.text import is_plain

MAX_LISTED = 10
"""Lines with a problem that are listed; of the others only the number."""
SEPARATOR = " "
"""Between path and label, where nothing else is said."""


@dataclass(frozen=True)
class Listing:
    """The videos of some lists, there or not: ``lists`` are the absolute paths of each, that of training first.

    ``root``: the folder that the paths in a clip store and in a quarantine are relative to.
    """

    root: Path
    lists: tuple[tuple[str, ...], ...]

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The absolute paths of all lists, each once, in their order."""
        return tuple(dict.fromkeys(path for one in self.lists for path in one))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The same relative to ``root``, each once; absolute where a video is not in it."""
        root = Root(self.root)
        return tuple(dict.fromkeys(root.relative(path) or path for path in self.paths))

    def present(self) -> Listing:
        """Those that are files and not empty. Raises InputError where there is none."""
        usable = dict(zip(self.paths, are_usable(self.paths), strict=True))
        if not any(usable.values()):
            remedy = "correct the folder of the videos (--root, DATA.PATH_PREFIX) or the lists"
            raise InputError(
                [f"none of the listed videos is there: {listed(self.paths, 1)}: {remedy}"]
            )
        kept = (tuple(path for path in one if usable[path]) for one in self.lists)
        return Listing(self.root, tuple(kept))


def read_listing(lists: Sequence[Path], root: Path, separator: str = SEPARATOR) -> Listing:
    """The videos of plain list files.

    A line is a path, ``separator`` and a label, as ``mgexp.data.records.read_list`` reads it; the label is
    not looked at. Raises InputError that lists every file and line that cannot be understood, and every
    path outside ``root``.
    """
    problems: list[str] = []
    if not is_folder(root):
        problems.append(f"--root {root.absolute()} is not a folder: give that of the videos")
    found = [_read(list_path, root, separator, problems) for list_path in lists]
    if not any(found) and not problems:
        problems.append(f"{', '.join(map(str, lists))}: no line holds a video")
    if problems:
        raise InputError(problems)
    listing = Listing(root, tuple(found))
    outside = [*links_problem(leading_out(listing.paths, root), root)]
    if outside:
        raise InputError([f"{outside[0]} (plain lists have no keys: name them in a YAML)"])
    return listing


def _read(list_path: Path, root: Path, separator: str, problems: list[str]) -> tuple[str, ...]:
    """The paths of one list; what is wrong with it is added to ``problems``."""
    text, wrong_file = read_text(list_path)
    inside = Root(root)
    found = [_path_of(line.strip(), inside, separator) for line in text.split("\n")]
    wrong = [number for number, path in enumerate(found, start=1) if path is None]
    problems += [*wrong_file, *_line_problems(list_path, wrong, root, separator)]
    return tuple(path for path in found if path)


def _path_of(line: str, inside: Root, separator: str) -> str | None:
    """The absolute path, empty for a blank line, None where the line is not in order."""
    if not line:
        return ""
    name, found, _ = line.rpartition(separator)
    return inside.path(name.strip()) if found and name.strip() and is_plain(name) else None


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
