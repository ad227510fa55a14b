"""Kinetics-400, -600 and -700: the official CSV files, train.csv and val.csv or validate.csv."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from mgexp.data.files import DAMAGED_TABLE, NO_COLUMN, Root, csv_rows, read_list_text, read_text
from mgexp.data.problems import ProblemLog
from mgexp.data.records import Listed, Split, VideoList, VideoRecord, video_list

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
