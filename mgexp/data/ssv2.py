"""Something-Something V2: the official JSON files train.json and validation.json, with labels.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mgexp.data.files import Root, read_list_text
from mgexp.data.problems import ProblemLog
from mgexp.data.records import Listed, VideoList, VideoRecord, video_list

REMEDIES = {
    "entry that is no object": 'an entry is {"id": ..., "template": ...}',
    "entry without an id": "an id is a whole number, which is also the name of the video's file",
    "entry without a template": "add it, or remove the entry; test.json, which has none, cannot be used",
    "template of no class": "correct it, or DATA.CLASSES, the path of labels.json",
    "id listed twice": "keep one of the entries",
}


def read_ssv2(list_path: Path, root: Path, classes: Mapping[str, int]) -> VideoList:
    """The videos of an official list: a JSON array of objects with ``id`` and ``template``.

    The class of a video is ``classes`` of its template without the square brackets of placeholders:
    "Pushing [something] from left to right" is "Pushing something from left to right" in labels.json.
    The file is ``<id>.webm`` in ``root``, or ``<id>.mp4``. The same id in two entries is a problem.
    Raises nothing: problems and missing videos are returned.
    """
    text, problems = read_list_text(list_path, root)
    entries, more = _entries(text, list_path) if not problems else ([], [])
    problems += more
    if problems:
        return VideoList((), (), tuple(problems))
    log = ProblemLog(REMEDIES)
    listed = list(_parse(entries, list_path, Root(root), classes, log))
    return video_list(listed, log.messages(), f"list file {list_path} is empty: add the videos")


def _entries(text: str, list_path: Path) -> tuple[list[Any], list[str]]:
    remedy = "give train.json or validation.json of Something-Something V2"
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        return [], [f"list file {list_path} is not JSON ({error}): {remedy}"]
    if not isinstance(entries, list):
        return [], [f"list file {list_path} is no JSON array of videos: {remedy}"]
    return entries, []


def _parse(
    entries: Sequence[Any], list_path: Path, root: Root, classes: Mapping[str, int], log: ProblemLog
) -> Iterator[Listed]:
    """The records of the entries that are in order; the others go to ``log``."""
    seen: set[str] = set()
    for number, entry in enumerate(entries, start=1):
        place = f"{list_path}, entry {number}"
        if not isinstance(entry, dict):
            log.add("entry that is no object", place, entry)
            continue
        name, template = str(entry.get("id", "")), str(entry.get("template", ""))
        label = classes.get(template.replace("[", "").replace("]", ""))
        if not (name.isascii() and name.isdigit()):
            log.add("entry without an id", place, name)
        elif not template:
            log.add("entry without a template", place, name)
        elif label is None:
            log.add("template of no class", place, template)
        elif name in seen:
            log.add("id listed twice", place, name)
        else:
            seen.add(name)
            webm, mp4 = (f"{root.folder}/{name}{ending}" for ending in (".webm", ".mp4"))
            yield Listed(VideoRecord(webm, label), (mp4,))
