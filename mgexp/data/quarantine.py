"""The quarantine: a list of videos that are not used, because checking found them unusable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mgexp.data.files import Root
from mgexp.data.records import Record, VideoList
from mgexp.record.files import is_file, is_there


@dataclass(frozen=True)
class Quarantine:
    """The videos of a quarantine: ``names`` are paths relative to ``root``; ``problems`` are those of the file."""

    root: Root
    names: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()

    def holds(self, path: str) -> bool:
        """Whether the video at the absolute ``path`` is in it."""
        return bool(self.names) and (self.root.relative(path) or path) in self.names


def read_quarantine(path: Path, root: Path) -> Quarantine:
    """The quarantine of a file: a path per line, relative to ``root`` or absolute, in UTF-8.

    Raises nothing: what is wrong with the file is returned.
    """
    inside = Root(root)
    try:
        if is_there(path) and not is_file(path):  # a device has no end
            raise OSError("not a regular file")
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, ValueError) as error:  # ValueError: no UTF-8
        remedy = "make it with tools/check_data.py, or set DATA.QUARANTINE ''"
        problem = f"DATA.QUARANTINE {path.absolute()} cannot be read ({error}): {remedy}"
        return Quarantine(inside, problems=(problem,))
    given = (line.strip() for line in lines if line.strip())
    return Quarantine(inside, frozenset(_name(line, inside) for line in given))


def without_quarantined(videos: VideoList, quarantine: Quarantine) -> VideoList:
    """``videos`` with those of the quarantine counted as missing, and its problems as those of the list.

    Of videos that are not in the list the quarantine may hold any number.
    """
    kept: list[Record] = []
    shut_out: list[str] = []
    for record in videos.records:
        if quarantine.holds(record.path):
            shut_out.append(record.path)
        else:
            kept.append(record)
    return replace(
        videos,
        records=tuple(kept),
        missing=(*videos.missing, *shut_out),
        problems=(*videos.problems, *quarantine.problems),
    )


def unmatched_problem(
    file: Path, quarantine: Quarantine, lists: Sequence[VideoList]
) -> Iterator[str]:
    """A quarantine of which no line names a video of ``lists``, there or not, such as that of another data set.

    ``lists``: all lists of the run, since a quarantine may be of one of them. Nothing is said where one of
    them has problems, or where the quarantine is empty.
    """
    if not quarantine.names or any(videos.problems for videos in lists):
        return
    records = (record.path for videos in lists for record in videos.records)
    missing = (path for videos in lists for path in videos.missing)
    if not any(quarantine.holds(path) for paths in (records, missing) for path in paths):
        yield (
            f"DATA.QUARANTINE {file.absolute()}: none of its {len(quarantine.names)} lines, such as "
            f"{min(quarantine.names)!r}, is a video of DATA.TRAIN_LIST or DATA.VAL_LIST below "
            f"{quarantine.root.folder}: make it with tools/check_data.py from them, or set DATA.QUARANTINE ''"
        )


def quarantine_text(paths: Iterable[str], root: Path) -> str:
    """The file: a line per path, sorted; relative to ``root`` where it lies there, so that a set may move."""
    base = Root(root)
    lines = (base.relative(path) or path for path in paths)
    return "".join(f"{line}\n" for line in sorted(lines))


def _name(line: str, root: Root) -> str:
    """Relative to the root; a line that leads out of it stays as it is, and names no video."""
    path = root.path(line)
    return (root.relative(path) if path is not None else None) or line
