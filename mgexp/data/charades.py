"""Charades: the official CSV files Charades_v1_train.csv and Charades_v1_test.csv, many labels a video."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mgexp.data.files import DAMAGED_TABLE, NO_COLUMN, Root, csv_rows, read_list_text
from mgexp.data.problems import ProblemLog
from mgexp.data.records import Action, ActionRecord, Listed, VideoList, video_list

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
    listed = list(_parse(text, list_path, Root(root), num_classes, log))
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


def _parse(
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
