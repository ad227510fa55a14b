"""The videos of a run's lists or of plain list files, without the videos of a quarantine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from mgexp.config.check import cross_problems
from mgexp.config.keys import Config, DataKeys
from mgexp.config.load import in_fold, read_config
from mgexp.data.boxes import coco_names, read_coco
from mgexp.data.classes import number_classes, read_classes, read_text
from mgexp.data.formats import (
    Findings,
    class_folders,
    hmdb51_files,
    kinetics_labels,
    read_charades,
    read_folders,
    read_hmdb51,
    read_kinetics,
    read_list,
    read_ssv2,
    read_ucf101,
)
from mgexp.data.records import Record, Span, Split, VideoList, VideoRecord
from mgexp.errors import InputError, collected, listed, raise_problems
from mgexp.text import counted, escaped
from mgexp.video.paths import Root
from mgexp.video.store import StoreDir, is_gone

ListKey = Literal["TRAIN_LIST", "VAL_LIST"]
LIST_KEYS: tuple[ListKey, ...] = ("TRAIN_LIST", "VAL_LIST")
"""Keys of DATA that name lists, in the order in which tools take them."""


def build_list(cfg: Config, key: ListKey) -> VideoList:
    """Read the videos of DATA.``key``, TRAIN_LIST or VAL_LIST, with the reader of DATA.FORMAT.

    Videos in DATA.QUARANTINE count as missing. So DATA.MAX_UNUSABLE_SHARE also limits how many a quarantine may
    take out. A video that is gone exists if DATA.STORE has copies of it.
    """
    cfg = in_fold(cfg)
    data, problems = cfg.DATA, list[str]()
    videos, quarantine = VideoList(), frozenset[str]()
    root = Root(videos_root(data))
    with collected(problems):
        videos = build_entries(cfg, key).existing(_has_copy(data.STORE, root))
    with collected(problems):
        quarantine = _read_quarantine(data)
    quarantined = frozenset(
        path for path in videos.paths if quarantine and root.name(path) in quarantine
    )
    records = tuple(record for record in videos.records if record.path not in quarantined)
    shut_out = (record.path for record in videos.records if record.path in quarantined)
    return replace(
        videos,
        records=records,
        missing=(*videos.missing, *shut_out),
        quarantined=quarantined,
        problems=(*videos.problems, *problems),
    )


def build_entries(cfg: Config, key: ListKey) -> Findings:
    """Read the entries of DATA.``key`` with the reader of DATA.FORMAT, without a search for the files of videos.

    Raises InputError for a key that is not set, and for classes that cannot be numbered.
    """
    data, model = cfg.DATA, cfg.MODEL
    listed_in: str = getattr(data, key)
    if not listed_in:
        raise InputError([f"DATA.{key} is not set"])
    path, root = Path(listed_in), Path(data.PATH_PREFIX)
    split: Split = "train" if key == "TRAIN_LIST" else "val"
    num_classes, has_many = model.NUM_CLASSES, model.LOSS_FUNC == "bce_logit"
    numbers = _class_numbers(data, num_classes)
    # A shell hands a tab on as two characters.
    separator = data.PATH_LABEL_SEPARATOR.replace(r"\t", "\t")
    # Functions, so that only the reader of this format runs.
    readers: dict[str, Callable[[], Findings]] = {
        "list": lambda: read_list(path, root, num_classes, separator, has_many_labels=has_many),
        "rawframes": lambda: read_list(path, root, num_classes, separator, has_lengths=True),
        "kinetics": lambda: read_kinetics(path, root, numbers, split),
        "ssv2": lambda: read_ssv2(path, root, numbers),
        "coco": lambda: read_coco(path, root, numbers),
        "charades": lambda: read_charades(path, root, num_classes),
        "ucf101": lambda: read_ucf101(path, root, numbers),
        "hmdb51": lambda: read_hmdb51(path, root, num_classes, split),
        "folders": lambda: read_folders(path, numbers),
    }
    return readers[data.FORMAT]()


def _has_copy(store: str, root: Root) -> Callable[[str], bool]:
    """Return what tells of a video that is gone whether ``store`` has copies of it."""

    def has_copy(path: str) -> bool:
        # Without a store, building the opener reports the problem.
        with suppress(InputError):
            # An empty file is no video that is gone: the copies are of an earlier content.
            return is_gone(path) and root.name(path.rstrip("/")) in StoreDir(Path(store)).copied()
        return False

    return has_copy if store else lambda path: False


def build_class_names(cfg: Config) -> tuple[str, ...]:
    """Return the names of the classes 0, 1, …, each in one line. Return () if the data set has no names.

    The lists have no problems: `build_list` has read them.
    """
    data = in_fold(cfg).DATA
    names: Iterable[str] = _class_numbers(data, cfg.MODEL.NUM_CLASSES)
    if data.FORMAT == "hmdb51":
        names = sorted(hmdb51_files(Path(data.TRAIN_LIST)))
    # A name of spaces would be an empty line in a file of names.
    lines = [escaped(name).strip() for name in names]
    return tuple(line or f"class {number}" for number, line in enumerate(lines))


def _class_numbers(data: DataKeys, num_classes: int) -> dict[str, int]:
    """Number the classes by DATA.CLASSES. Without it, kinetics, folders and coco use the training list.

    Other lists have numbers themselves. The result is in the order of the numbers. Raises InputError.
    """
    # The validation list would not do: a class may have no video in it, and then the numbers would differ.
    if data.CLASSES:
        return read_classes(Path(data.CLASSES), num_classes)
    if data.FORMAT in {"ssv2", "ucf101"}:
        file = "labels.json" if data.FORMAT == "ssv2" else "classInd.txt"
        raise InputError([f"DATA.CLASSES is not set: it names the official {file}"])
    readers = {"kinetics": kinetics_labels, "folders": class_folders, "coco": coco_names}
    if data.FORMAT not in readers:
        return {}
    if not data.TRAIN_LIST:
        raise InputError(["DATA.TRAIN_LIST is not set: it has all classes"])
    names = readers[data.FORMAT](Path(data.TRAIN_LIST))
    return number_classes(names, data.TRAIN_LIST, num_classes)


def videos_root(data: DataKeys) -> Path:
    """Return the folder that the paths in DATA.STORE and DATA.QUARANTINE are relative to.

    It is DATA.PATH_PREFIX. The format folders does not use that key: there it is the folder that holds the lists.
    """
    if data.FORMAT != "folders":
        return Path(data.PATH_PREFIX)
    folders = [Path(path).absolute() for path in (data.TRAIN_LIST, data.VAL_LIST) if path]
    parents = [os.path.dirname(os.path.normpath(folder)) for folder in folders]  # noqa: PTH120
    return Path(os.path.commonpath(parents)) if parents else Path.cwd()


def _read_quarantine(data: DataKeys) -> frozenset[str]:
    """Read DATA.QUARANTINE: a path per line, relative to the root of the videos or absolute, in UTF-8.

    Return the names of its videos, as ``Root.name`` gives them. Raises InputError.
    """
    if not data.QUARANTINE:
        return frozenset()
    lines = read_text(Path(data.QUARANTINE), "DATA.QUARANTINE").split("\n")
    root = Root(videos_root(data))
    return frozenset(root.name(root.path(line)) for line in map(str.strip, lines) if line)


def quarantine_problems(data: DataKeys, lists: Sequence[VideoList]) -> list[str]:
    """Report a DATA.QUARANTINE that names no video of ``lists``, perhaps because it belongs to another data set.

    ``lists`` are the training list and the validation list, because a quarantine may name videos of only one of
    them. If a list has problems, or if the quarantine is empty, nothing is reported.
    """
    if any(videos.problems or videos.quarantined for videos in lists):
        return []
    names = _read_quarantine(data)
    if not names:
        return []
    return [
        f"DATA.QUARANTINE {data.QUARANTINE}: none of its {len(names)} lines, such as "
        f"{min(names)!r}, is a video of DATA.TRAIN_LIST or DATA.VAL_LIST below {videos_root(data)}"
    ]


def overlap_problems(
    train: VideoList, val: VideoList, num_classes: int
) -> tuple[list[str], list[str]]:
    """Compare the videos and the classes of the two lists. Return problems, and warnings.

    A problem makes every accuracy meaningless: all validation videos are training videos, a class is in the
    validation list alone, or a video has two labels. A warning may be meant: some videos are in both lists, or a
    class has no video.
    """
    problems = [*_label_problems("training", train), *_label_problems("validation", val)]
    warnings = []
    trained = {*train.paths}
    both = [path for path in val.paths if path in trained]
    # Stretches of one recording may be in both lists.
    if both and len(both) == val.num_listed and not any(record.part for record in val.records):
        problems.append(f"all {len(both)} validation videos are training videos too")
    elif both:
        warnings.append(
            f"{len(both)} of {val.num_listed} validation videos are training videos too, such as "
            f"{listed(both, 1)}: the accuracy is better than that of new videos"
        )
    labels, val_labels = labels_of(train.records), labels_of(val.records)
    if len(labels) == 1:
        problems.append(
            f"all training videos are of class {min(labels)}: there is nothing to learn"
        )
    if labels and (untrained := sorted(val_labels - labels)):
        problems.append(
            f"the validation list has videos of {counted(len(untrained), 'class', 'classes')} without a training "
            f"video (class {listed([*map(str, untrained)], 10)})"
        )
    unused = sorted({*range(num_classes)} - labels - val_labels)
    if labels and unused:
        warnings.append(
            f"MODEL.NUM_CLASSES = {num_classes}, but {counted(len(unused), 'class has', 'classes have')} no "
            f"video, such as class {listed([*map(str, unused)], 5)}"
        )
    return problems, warnings


def labels_of(records: Iterable[Record]) -> set[int]:
    """Return the classes of videos that have one class each."""
    return {record.label for record in records if isinstance(record, VideoRecord)}


def lost_classes(key: str, listed_videos: Sequence[Record], used: Sequence[Record]) -> list[str]:
    """Warn if ``key``, which takes every n-th video, leaves half as many classes as it could."""
    if len(used) == len(listed_videos):
        return []
    labels, left = labels_of(listed_videos), labels_of(used)
    if not labels or 2 * len(left) > min(len(labels), len(used)):
        return []
    return [
        f"{key} = {len(used)} leaves videos of {len(left)} of {len(labels)} classes: shuffle the list"
    ]


def _label_problems(which: str, videos: VideoList) -> Iterator[str]:
    labels: dict[tuple[str, Span | None], int] = {}
    twice = [
        f"{record.path} ({labels[record.path, record.part]} and {record.label})"
        for record in videos.records
        if isinstance(record, VideoRecord)
        and labels.setdefault((record.path, record.part), record.label) != record.label
    ]
    if twice:
        num = counted(len(twice), "video is", "videos are")
        yield f"{num} in the {which} list with two labels: {listed(twice, 3)}"


@dataclass(frozen=True)
class Listing:
    """The videos that a tool checks or copies, by absolute paths, each once; the training list comes first.

    ``root``: the folder that the paths in a clip store and in a quarantine are relative to. ``paths``: all videos
    but those of a quarantine. ``existing``: those that exist.
    """

    root: Path
    paths: tuple[str, ...]
    existing: tuple[str, ...]


def read_listing(yaml: Path, *pairs: Sequence[str]) -> Listing:
    """Read the videos of DATA.TRAIN_LIST and DATA.VAL_LIST for a tool; one of these keys may be empty.

    ``pairs`` are KEY VALUE. Raises InputError with all problems of the configuration and of the lists.
    """
    cfg, problems = read_config(yaml, *pairs)
    data = in_fold(cfg).DATA
    lists = [build_list(cfg, key) for key in LIST_KEYS if getattr(data, key)]
    problems += cross_problems(cfg) + [text for videos in lists for text in videos.problems]
    if not lists:
        problems.append("DATA.TRAIN_LIST and DATA.VAL_LIST are not set")
    # A quarantine may name videos of one list only, so it can be judged only with both lists.
    if len(lists) == len(LIST_KEYS):
        problems += quarantine_problems(data, lists)
    raise_problems(problems)
    paths = {
        path: None for videos in lists for path in videos.paths if path not in videos.quarantined
    }
    if not paths:
        raise InputError([f"DATA.QUARANTINE {data.QUARANTINE} names all videos of the lists"])
    existing = {record.path: None for videos in lists for record in videos.records}
    return Listing(videos_root(data), tuple(paths), tuple(existing))
