"""HMDB-51: the official split files, one for each class, such as brush_hair_test_split1.txt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mgexp.data.files import (
    DAMAGED_TABLE,
    NO_COLUMN,
    ProblemLog,
    csv_rows,
    number_classes,
    read_list_text,
    read_text,
    root_problems,
)
from mgexp.data.records import (
    Action,
    ActionRecord,
    Listed,
    Split,
    VideoList,
    VideoRecord,
    video_list,
)
from mgexp.run.files import is_folder
from mgexp.video.paths import Root

COLUMNS = ("label", "youtube_id", "time_start", "time_end")
YOUTUBE_ID = re.compile(r"[A-Za-z0-9_-]{11}")
SECONDS = re.compile(r"([0-9]{1,6})(?:\.0*)?")
TRAIN_SPLITS = frozenset({"train", "training"})

REMEDIES = {
    NO_COLUMN: f"the first line of a Kinetics CSV names the columns {', '.join(COLUMNS)}; the test "
    "lists that have no labels cannot be used",
    DAMAGED_TABLE: "write it again as comma-separated values",
    "row without a label": "add it, or remove the row; the test lists without labels cannot be used",
    "label of no class": "correct it, or DATA.CLASSES; without that key the classes are the labels of "
    "DATA.TRAIN_LIST",
    "youtube_id in another form": "it has 11 letters, digits, - or _",
    "time that is no whole number of seconds": "write time_start and time_end as in the official CSV",
    "row of the other split": "give the training CSV as DATA.TRAIN_LIST, another as DATA.VAL_LIST",
    "clip listed twice": "keep one of the rows",
}


def read_kinetics(
    list_path: Path, root: Path, classes: Mapping[str, int], split: Split
) -> VideoList:
    """The clips of an official CSV: label, youtube_id, time_start, time_end, and other columns or not.

    A clip is ``<id>_<start:06d>_<end:06d>.mp4``, in ``root``, in its folder ``train`` or ``val`` (also
    ``validate``), or in a folder of its class in any of these, called as the label or with _ for spaces.
    ``classes``: label → number. Where there is a column ``split``, rows of training are for ``split``
    "train" only, all others for "val" only. The same clip in two rows is a problem; two clips of one
    YouTube video are not. Raises nothing: problems and missing clips are returned.
    """
    text, problems = read_list_text(list_path, root)
    if problems:
        return VideoList((), (), tuple(problems))
    log = ProblemLog(REMEDIES)
    listed = list(_parse(text, list_path, Root(root), classes, split, log))
    return video_list(listed, log.messages(), f"list file {list_path} has no rows: add the clips")


def kinetics_labels(list_path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The different labels of an official CSV, and what is wrong with the file."""
    text, problems = read_text(list_path)
    if problems:
        return (), tuple(problems)
    log = ProblemLog(REMEDIES)
    labels = {row["label"] for _, row in csv_rows(text, list_path, ("label",), log)} - {""}
    return tuple(sorted(labels)), tuple(log.messages())


def _parse(
    text: str,
    list_path: Path,
    root: Root,
    classes: Mapping[str, int],
    split: Split,
    log: ProblemLog,
) -> Iterator[Listed]:
    """The records of the rows that are in order; the others go to ``log``."""
    seen: set[str] = set()
    folders: dict[str, tuple[str, ...]] = {}
    for place, row in csv_rows(text, list_path, COLUMNS, log):
        start, end = (SECONDS.fullmatch(row[name]) for name in ("time_start", "time_end"))
        label = row["label"]
        if not label:
            log.add("row without a label", place, row["youtube_id"])
        elif label not in classes:
            log.add("label of no class", place, label)
        elif not YOUTUBE_ID.fullmatch(row["youtube_id"]):
            log.add("youtube_id in another form", place, row["youtube_id"])
        elif start is None or end is None:
            times = f"{row['time_start']},{row['time_end']}"
            log.add("time that is no whole number of seconds", place, times)
        elif row.get("split") and (row["split"].lower() in TRAIN_SPLITS) != (split == "train"):
            log.add("row of the other split", place, row["split"])
        else:
            name = f"{row['youtube_id']}_{int(start[1]):06d}_{int(end[1]):06d}.mp4"
            if name in seen:
                log.add("clip listed twice", place, name)
                continue
            seen.add(name)
            if label not in folders:
                folders[label] = _folders(root, label, split)
            first, *others = (f"{folder}/{name}" for folder in folders[label])
            yield Listed(VideoRecord(first, classes[label]), tuple(others))


def _folders(root: Root, label: str, split: Split) -> tuple[str, ...]:
    """The folders that there are where a clip of ``label`` may be, the root folder first, all inside it."""
    splits = ("", "train") if split == "train" else ("", "val", "validate")
    classes = ("", label, label.replace(" ", "_"))
    names = ("/".join(filter(None, (top, name))) for name in classes for top in splits)
    inside = (path for path in map(root.path, names) if path is not None and Path(path).is_dir())
    return tuple(dict.fromkeys((root.folder, *inside)))


REMEDIES_SSV2 = {
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
    log = ProblemLog(REMEDIES_SSV2)
    listed = list(_parse_ssv2(entries, list_path, Root(root), classes, log))
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


def _parse_ssv2(
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


VIDEO_ID = re.compile(r"[A-Za-z0-9]+")
ACTION = re.compile(r"c([0-9]{3})\s+([0-9]+(?:\.[0-9]+)?)\s+([0-9]+(?:\.[0-9]+)?)")


def read_charades(list_path: Path, root: Path, num_classes: int) -> VideoList:
    """The videos of an official CSV: columns ``id`` and ``actions`` are read, others may be there.

    ``actions`` is "c092 11.90 21.20;c147 0.00 12.60": class 92 from 11.9 to 21.2 s and class 147 from 0 to
    12.6 s. Empty actions are no problem: such a video shows no class, and is kept as a negative of all (the
    official evaluation leaves it out; PySlowFast counts it as we do). The file is ``<id>.mp4`` in ``root``.
    The same id in two rows is a problem. Raises nothing: problems and missing videos are returned.
    """
    text, problems = read_list_text(list_path, root)
    if problems:
        return VideoList((), (), tuple(problems))
    log = _problem_log(num_classes)
    listed = list(_parse_charades(text, list_path, Root(root), num_classes, log))
    found = video_list(listed, log.messages(), f"list file {list_path} has no rows: add the videos")
    if listed and not any(_actions_of(one) for one in listed):
        problem = (
            f"list file {list_path}: no video has an action: give a CSV with its column filled"
        )
        return VideoList(found.records, found.missing, (*found.problems, problem))
    return found


def _problem_log(num_classes: int) -> ProblemLog:
    return ProblemLog(
        {
            NO_COLUMN: "the first line of a Charades CSV names the columns, id and actions among them",
            DAMAGED_TABLE: "write it again as comma-separated values",
            "id in another form": "it has letters and digits, and is the name of the video's file",
            "id listed twice": "keep one of the rows",
            "action in another form": "write c092 11.90 21.20 for class 92 from 11.9 to 21.2 seconds, and "
            "; between actions",
            "action outside the classes": f"classes are c000 to c{num_classes - 1:03d}; correct it or "
            f"MODEL.NUM_CLASSES, now {num_classes}",
            "action that ends before it starts": "correct its seconds",
        }
    )


def _parse_charades(
    text: str, list_path: Path, root: Root, num_classes: int, log: ProblemLog
) -> Iterator[Listed]:
    """The records of the rows that are in order; the others go to ``log``."""
    seen: set[str] = set()
    for place, row in csv_rows(text, list_path, ("id", "actions"), log):
        name = row["id"]
        actions = tuple(_actions(row["actions"], place, num_classes, log))
        if not VIDEO_ID.fullmatch(name):
            log.add("id in another form", place, name)
        elif name in seen:
            log.add("id listed twice", place, name)
        else:
            seen.add(name)
            yield Listed(ActionRecord(f"{root.folder}/{name}.mp4", actions, num_classes))


def _actions(text: str, place: str, num_classes: int, log: ProblemLog) -> Iterator[Action]:
    """The actions that are in order; the others go to ``log``."""
    for part in filter(None, (part.strip() for part in text.split(";"))):
        match = ACTION.fullmatch(part)
        if match is None:
            log.add("action in another form", place, part)
            continue
        action = Action(int(match[1]), float(match[2]), float(match[3]))
        if action.label >= num_classes:
            log.add("action outside the classes", place, part)
        elif action.end_seconds < action.start_seconds:
            log.add("action that ends before it starts", place, part)
        else:
            yield action


def _actions_of(listed: Listed) -> tuple[Action, ...]:
    """Those of the record, which is of this kind."""
    return listed.record.actions if isinstance(listed.record, ActionRecord) else ()


LINE = re.compile(r"(?P<folder>[^/\s]+)/(?P<name>[^/]+?\.avi)(?:\s+(?P<number>[0-9]{1,9}))?")

REMEDIES_UCF = {
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
    log = ProblemLog(REMEDIES_UCF)
    listed = list(_parse_ucf(text.splitlines(), list_path, Root(root), classes, log))
    return video_list(listed, log.messages(), f"list file {list_path} is empty: add the videos")


def _parse_ucf(
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


FILE_NAME = re.compile(r"(?P<class>.+)_test_split(?P<number>[0-9]+)\.txt")
LINE_HMDB = re.compile(r"(?P<name>.+\S)\s+(?P<use>[012])")
USE: dict[Split, str] = {"train": "1", "val": "2"}  # 0: in neither

REMEDIES_HMDB = {
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
    log = ProblemLog(REMEDIES_HMDB)
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
        listed += _parse_hmdb(text.splitlines(), path, Root(root), inside, label, USE[split], log)
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


def _parse_hmdb(
    lines: Sequence[str], path: Path, root: Root, inside: str, label: int, use: str, log: ProblemLog
) -> Iterator[Listed]:
    """The records of the lines that are in order and of that use; others in another form go to ``log``."""
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        stripped, place = line.strip(), f"{path}:{number}"
        if not stripped:
            continue
        match = LINE_HMDB.fullmatch(stripped)
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
