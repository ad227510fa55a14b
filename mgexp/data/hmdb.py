"""HMDB-51: the official split files, one for each class, such as brush_hair_test_split1.txt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from mgexp.data.classes import number_classes
from mgexp.data.files import Root, read_text, root_problems
from mgexp.data.problems import ProblemLog
from mgexp.data.records import Listed, Split, VideoList, VideoRecord, video_list
from mgexp.record.files import is_folder

FILE_NAME = re.compile(r"(?P<class>.+)_test_split(?P<number>[0-9]+)\.txt")
LINE = re.compile(r"(?P<name>.+\S)\s+(?P<use>[012])")
USE: dict[Split, str] = {"train": "1", "val": "2"}  # 0: in neither

REMEDIES = {
    "file that is no split file": "the pattern must match CLASS_test_splitN.txt files only",
    "line in another form": "write the name of a video and 1 (training), 2 (test) or 0 (neither)",
    "path outside the root folder": "correct it",
    "video listed twice": "keep one of the lines",
}


def read_hmdb51(pattern: Path, root: Path, num_classes: int, split: Split) -> VideoList:
    """The videos of one split: ``pattern`` is FOLDER/*_test_split1.txt (2, 3), all files of it.

    A line is a video of the file's class and 1 for training, 2 for test ("val" here), 0 for neither.
    Classes are numbered by name. The file is ``root/CLASS/NAME``. The same video twice in a file is a
    problem, and so are files of two splits. Raises nothing: problems and missing videos are returned.
    """
    files = _matching(pattern)
    problems = [*_pattern_problems(pattern, files), *root_problems(root)]
    log = ProblemLog(REMEDIES)
    named = [(path, FILE_NAME.fullmatch(path.name)) for path in files]
    for path, match in named:
        if match is None:
            log.add("file that is no split file", str(path.parent), path.name)
    good = [(path, match) for path, match in named if match]
    classes = number_classes([match["class"] for _, match in good], str(pattern), num_classes)
    if problems:
        return VideoList((), (), tuple(problems))
    listed: list[Listed] = []
    for path, match in good:
        text, found = read_text(path)
        problems += found
        label, inside = classes.numbers[match["class"]], f"{match['class']}/"
        listed += _parse(text.splitlines(), path, Root(root), inside, label, USE[split], log)
    told = [*problems, *classes.problems, *log.messages()]
    return video_list(listed, told, f"list files {pattern}: no video is marked {USE[split]}")


def _matching(pattern: Path) -> list[Path]:
    if not is_folder(pattern.parent):
        return []
    try:
        return sorted(pattern.parent.glob(pattern.name))
    except (OSError, ValueError):  # no pattern, such as an empty one; a name that is too long
        return []


def _pattern_problems(pattern: Path, files: Sequence[Path]) -> Iterator[str]:
    if not files:
        yield f"no file is called {pattern.absolute()}: give FOLDER/*_test_split1.txt, in quotes"
    numbers = {
        match["number"] for match in map(FILE_NAME.fullmatch, (f.name for f in files)) if match
    }
    if len(numbers) > 1:
        listed = ", ".join(sorted(numbers))
        yield f"{pattern} takes files of splits {listed}: give one, as *_test_split1.txt"


def _parse(
    lines: Sequence[str], path: Path, root: Root, inside: str, label: int, use: str, log: ProblemLog
) -> Iterator[Listed]:
    """The records of the lines that are in order and of that use; others in another form go to ``log``."""
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        stripped, place = line.strip(), f"{path}:{number}"
        if not stripped:
            continue
        match = LINE.fullmatch(stripped)
        video = root.path(inside + match["name"]) if match else None
        if match is None:
            log.add("line in another form", place, stripped)
        elif video is None:
            log.add("path outside the root folder", place, stripped)
        elif video in seen:
            log.add("video listed twice", place, stripped)
        else:
            seen.add(video)
            if match["use"] == use:
                yield Listed(VideoRecord(video, label))
