"""Videos and what they show, and the plainest list of them: ``path label`` lines, as Kinetics users have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from mgexp.data.files import ProblemLog, read_list_text
from mgexp.text import is_plain, shown
from mgexp.video.paths import Root, are_usable

Split = Literal["train", "val"]
"""What a list is for: some official files hold the videos of both."""
Span = tuple[float, float]
"""First and last moment of a clip, in seconds from the start of the video."""
Target = int | tuple[float, ...]
"""What is learned: a class, from 0, or for each class 1.0 where it is shown and 0.0 where it is not."""


@dataclass(frozen=True)
class VideoRecord:
    """A video file, by its absolute path, and its class, from 0."""

    path: str
    label: int

    def target(self, span: Span | None = None) -> Target:
        """The class, whatever the clip."""
        return self.label

    def line(self) -> str:
        """All that identifies the record, in one line."""
        return f"{self.path} {self.label}"


@dataclass(frozen=True)
class Action:
    """Class ``label``, from 0, is shown from ``start_seconds`` to ``end_seconds``, both included."""

    label: int
    start_seconds: float
    end_seconds: float

    def overlaps(self, span: Span) -> bool:
        """Whether the action is shown at some moment of ``span``."""
        return self.start_seconds <= span[1] and span[0] <= self.end_seconds


@dataclass(frozen=True)
class ActionRecord:
    """A video file, by its absolute path, and the actions in it: none, one or many, at once or in turn."""

    path: str
    actions: tuple[Action, ...]
    num_classes: int

    def target(self, span: Span | None = None) -> Target:
        """Of ``num_classes`` classes, those of the actions that overlap ``span``; None: of the whole video."""
        shown = {one.label for one in self.actions if span is None or one.overlaps(span)}
        return tuple(float(label in shown) for label in range(self.num_classes))

    def line(self) -> str:
        """All that identifies the record, in one line."""
        actions = (f"{one.label} {one.start_seconds} {one.end_seconds}" for one in self.actions)
        return f"{self.path} {';'.join(actions)}"


Record = VideoRecord | ActionRecord


@dataclass(frozen=True)
class VideoList:
    """What a list file holds.

    ``records``: the videos that exist, in the order of the list. ``missing``: absolute paths of those that
    do not exist as files, or are empty files; the caller decides how many may be. ``problems``: what is
    wrong with the list itself, one message each.
    """

    records: tuple[Record, ...]
    missing: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def num_listed(self) -> int:
        """Videos in the list, there or not."""
        return len(self.records) + len(self.missing)


@dataclass(frozen=True)
class Listed:
    """A video of a list, at its usual place, and the other places where its file may be (absolute paths)."""

    record: Record
    elsewhere: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """Where to look, in this order."""
        return (self.record.path, *self.elsewhere)


def video_list(listed: Sequence[Listed], problems: Iterable[str], if_empty: str) -> VideoList:
    """The listed videos that exist, each at the first of its places with a file that is not empty.

    A missing video is named by its usual place. ``if_empty`` is the problem of a list without videos.
    """
    told = (*problems, *_unfit_names(listed)) or (() if listed else (if_empty,))
    found = _find(listed)
    records = (replace(one.record, path=found[i]) for i, one in enumerate(listed) if i in found)
    missing = (one.record.path for i, one in enumerate(listed) if i not in found)
    return VideoList(tuple(records), tuple(missing), told)


def _unfit_names(listed: Sequence[Listed]) -> Iterator[str]:
    """Names that would break the lines of logs and of a quarantine."""
    unfit = [one.record.path for one in listed if not is_plain(one.record.path)]
    if unfit:
        yield (
            f"{len(unfit)} videos have names with control characters, or bytes that are no UTF-8, such as "
            f"{shown(unfit[0])}: rename them"
        )


def _find(listed: Sequence[Listed]) -> dict[int, str]:
    """Position in the list → path, of the videos that exist."""
    found: dict[int, str] = {}
    for turn in range(max((len(one.places) for one in listed), default=0)):
        left = [i for i, one in enumerate(listed) if i not in found and turn < len(one.places)]
        paths = [listed[i].places[turn] for i in left]
        usable = are_usable(paths)
        found |= {i: path for i, path, good in zip(left, paths, usable, strict=True) if good}
    return found


def read_list(
    list_path: Path,
    root: Path,
    num_classes: int,
    separator: str = " ",
    allow_outside: bool = False,
) -> VideoList:
    """The videos of a list file, one ``path label`` line each, with everything that is wrong with it.

    The line is split at the last ``separator``, so that paths may hold it too. Blank lines, Windows line
    ends and a UTF-8 byte order mark are fine. Paths are relative to ``root``, or absolute below it
    (``allow_outside``: or anywhere); labels are integers in [0, num_classes). Raises nothing: problems and
    missing videos are returned.
    """
    text, problems = read_list_text(list_path, root)
    if problems:
        return VideoList((), (), tuple(problems))
    log = _problem_log(root, num_classes, separator)
    inside = Root(root, allow_outside)
    listed = list(_parse(text.split("\n"), list_path, inside, num_classes, separator, log))
    if_empty = f"list file {list_path} is empty: write a 'path label' line for each video"
    return video_list(listed, log.messages(), if_empty)


def _problem_log(root: Path, num_classes: int, separator: str) -> ProblemLog:
    form = f"write path{separator}label, or set DATA.PATH_LABEL_SEPARATOR, now {separator!r}"
    labels = f"labels are integers from 0 to {num_classes - 1}"
    return ProblemLog(
        {
            "line without a label": form,
            "label that is no integer": labels,
            "label outside the classes": f"{labels}; correct it or MODEL.NUM_CLASSES, now {num_classes}",
            "path outside the root folder": "correct it, or set DATA.PATH_PREFIX to a folder that holds "
            f"all videos, now {root.absolute()}, or DATA.ALLOW_OUTSIDE True if you trust the list",
        }
    )


def _parse(
    lines: Sequence[str],
    list_path: Path,
    inside: Root,
    num_classes: int,
    separator: str,
    log: ProblemLog,
) -> Iterator[Listed]:
    """The records of the lines that are in order; the others go to ``log``."""
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if not stripped:
            continue
        place = f"{list_path}:{number}"
        name, found, label_text = stripped.rpartition(separator)
        label = _integer(label_text)
        path = inside.path(name.strip())
        if not found or not name.strip():
            log.add("line without a label", place, stripped)
        elif label is None:
            log.add("label that is no integer", place, label_text)
        elif not 0 <= label < num_classes:
            log.add("label outside the classes", place, label)
        elif path is None:
            log.add("path outside the root folder", place, name)
        else:
            yield Listed(VideoRecord(path, label))


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text) else None
