"""UCF-101: the official lists trainlist01.txt and testlist01.txt (02, 03), with classInd.txt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mgexp.data.files import Root, read_list_text
from mgexp.data.problems import ProblemLog
from mgexp.data.records import Listed, VideoList, VideoRecord, video_list

LINE = re.compile(r"(?P<folder>[^/\s]+)/(?P<name>[^/]+?\.avi)(?:\s+(?P<number>[0-9]{1,9}))?")

REMEDIES = {
    "line in another form": "write Class/v_Class_g01_c01.avi, and its number of classInd.txt or not",
    "folder of no class": "correct it, or DATA.CLASSES, the path of classInd.txt",
    "number of another class": "the number after the path is that of the folder in classInd.txt, from 1",
    "path outside the root folder": "correct it",
    "video listed twice": "keep one of the lines",
}


def read_ucf101(list_path: Path, root: Path, classes: Mapping[str, int]) -> VideoList:
    """The videos of a list of ``Class/name.avi`` lines, with a number (trainlist) or without (testlist).

    The class is the folder's, by ``classes``; a number must be that of the same class, counted from 1 as in
    classInd.txt. Blank lines, Windows line ends and a byte order mark are fine. The same video in two lines
    is a problem. Raises nothing: problems and missing videos are returned.
    """
    text, problems = read_list_text(list_path, root)
    if problems:
        return VideoList((), (), tuple(problems))
    log = ProblemLog(REMEDIES)
    listed = list(_parse(text.splitlines(), list_path, Root(root), classes, log))
    return video_list(listed, log.messages(), f"list file {list_path} is empty: add the videos")


def _parse(
    lines: Sequence[str], list_path: Path, root: Root, classes: Mapping[str, int], log: ProblemLog
) -> Iterator[Listed]:
    """The records of the lines that are in order; the others go to ``log``."""
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        stripped, place = line.strip(), f"{list_path}:{number}"
        if not stripped:
            continue
        match = LINE.fullmatch(stripped)
        if match is None:
            log.add("line in another form", place, stripped)
            continue
        path, label = root.path(f"{match['folder']}/{match['name']}"), classes.get(match["folder"])
        if path is None:
            log.add("path outside the root folder", place, stripped)
        elif label is None:
            log.add("folder of no class", place, match["folder"])
        elif match["number"] and int(match["number"]) != label + 1:
            log.add("number of another class", place, stripped)
        elif path in seen:
            log.add("video listed twice", place, stripped)
        else:
            seen.add(path)
            yield Listed(VideoRecord(path, label))
