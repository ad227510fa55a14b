"""From the configuration to the videos of its lists, their classes, and those of them that are not used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fvcore.common.config import CfgNode

from mgexp.data.charades import read_charades
from mgexp.data.classes import Classes, number_classes, read_classes
from mgexp.data.files import Root, leading_out, links_problem
from mgexp.data.folders import class_folders, common_root, folder_problems, read_folders
from mgexp.data.hmdb import read_hmdb51
from mgexp.data.kinetics import kinetics_labels, read_kinetics
from mgexp.data.lists.listing import Listing
from mgexp.data.quarantine import (
    Quarantine,
    read_quarantine,
    unmatched_problem,
    without_quarantined,
)
from mgexp.data.records import Split, VideoList, read_list
from mgexp.data.ssv2 import read_ssv2
from mgexp.data.ucf import read_ucf101
from mgexp.errors import InputError

LIST_FILES = {
    "list": "a text file with a 'path label' line per video",
    "kinetics": "the official CSV",
    "ssv2": "the official JSON, train.json or validation.json",
    "charades": "the official CSV, Charades_v1_train.csv or Charades_v1_test.csv",
    "ucf101": "the official list, such as trainlist01.txt or testlist01.txt",
    "hmdb51": "the official split files, in quotes: 'FOLDER/*_test_split1.txt'",
    "folders": "a folder with a folder of videos for each class",
}
"""By DATA.FORMAT, what DATA.TRAIN_LIST and DATA.VAL_LIST name."""
LIST_KEYS = ("TRAIN_LIST", "VAL_LIST")
"""Of DATA, in the order in which the tools take them."""
NO_VIDEOS = VideoList((), (), ())

PlainReader = Callable[[CfgNode, Path, Path, Split], VideoList]
ClassReader = Callable[[Path, Path, Mapping[str, int], Split], VideoList]

PLAIN_READERS: dict[str, PlainReader] = {
    "list": lambda cfg, path, root, _: read_list(
        path, root, cfg.MODEL.NUM_CLASSES, cfg.DATA.PATH_LABEL_SEPARATOR, cfg.DATA.ALLOW_OUTSIDE
    ),
    "charades": lambda cfg, path, root, _: read_charades(path, root, cfg.MODEL.NUM_CLASSES),
    "hmdb51": lambda cfg, path, root, split: read_hmdb51(path, root, cfg.MODEL.NUM_CLASSES, split),
}
"""Readers of lists that number their classes themselves."""
CLASS_READERS: dict[str, ClassReader] = {
    "kinetics": read_kinetics,
    "ssv2": lambda path, root, classes, _: read_ssv2(path, root, classes),
    "ucf101": lambda path, root, classes, _: read_ucf101(path, root, classes),
    "folders": lambda path, _, classes, __: read_folders(path, classes),
}
"""Readers of lists that name their classes."""


def build_list(cfg: CfgNode, key: str) -> VideoList:
    """The videos of DATA.``key``, TRAIN_LIST or VAL_LIST; those of DATA.QUARANTINE count as missing."""
    return without_quarantined(_listed_videos(cfg, key), build_quarantine(cfg))


def build_quarantine(cfg: CfgNode) -> Quarantine:
    """The videos of DATA.QUARANTINE; none where that is not set."""
    root = videos_root(cfg)
    if not cfg.DATA.QUARANTINE:
        return Quarantine(Root(root))
    return read_quarantine(Path(cfg.DATA.QUARANTINE), root)


def quarantine_problems(cfg: CfgNode, lists: Sequence[VideoList]) -> list[str]:
    """A DATA.QUARANTINE that names no video of ``lists``, those of training and of validation."""
    return list(unmatched_problem(Path(cfg.DATA.QUARANTINE), build_quarantine(cfg), lists))


def choice_problems(
    lists: Sequence[Path], root: Path | None, separator: str | None, yaml: Path | None
) -> Iterator[str]:
    """What is wrong with how videos are given: as plain lists below a root, or by a configuration, not both.

    None: the option was not given.
    """
    if lists and yaml is not None:
        yield (
            f"plain lists ({', '.join(map(str, lists))}) and --cfg {yaml}: give lists of 'path label' lines and "
            "--root, or --cfg with the DATA keys"
        )
    elif yaml is not None:
        if root is not None:
            yield f"--root {root} is for plain lists: with --cfg set DATA.PATH_PREFIX"
        if separator is not None:
            yield f"--separator {separator!r} is for plain lists: with --cfg set DATA.PATH_LABEL_SEPARATOR"
    elif not lists:
        yield "no videos are given: add --cfg YAML with the DATA keys, or lists of 'path label' lines and --root"
    elif root is None:
        yield "--root is missing: give the folder that the paths of the lists are relative to"
    if separator == "":
        yield "--separator is empty: use one character or more"


def build_listing(cfg: CfgNode, problems: Sequence[str], with_quarantined: bool) -> Listing:
    """The videos of DATA.TRAIN_LIST and DATA.VAL_LIST, there or not; one of them may be empty.

    ``with_quarantined``: those of DATA.QUARANTINE too, whatever that file is. Raises InputError with
    ``problems``, those of the configuration, and all that is wrong with the lists.
    """
    given = {key: _listed_videos(cfg, key) for key in LIST_KEYS if cfg.DATA[key]}
    found = [*problems, *(problem for videos in given.values() for problem in videos.problems)]
    if not given:
        found.append(_not_set(cfg, "TRAIN_LIST"))
    quarantine = Quarantine(Root(Path())) if with_quarantined else build_quarantine(cfg)
    found += quarantine.problems
    if len(given) == len(LIST_KEYS):
        found += unmatched_problem(Path(cfg.DATA.QUARANTINE), quarantine, [*given.values()])
    if found:
        raise InputError(list(dict.fromkeys(found)))
    paths = (_paths(given.get(key, NO_VIDEOS)) for key in LIST_KEYS)
    kept = (tuple(path for path in one if not quarantine.holds(path)) for one in paths)
    return Listing(videos_root(cfg), tuple(kept))


def _paths(videos: VideoList) -> tuple[str, ...]:
    """Of the videos that are there, and then of those that are not."""
    return (*(record.path for record in videos.records), *videos.missing)


def videos_root(cfg: CfgNode) -> Path:
    """The folder that the paths in DATA.STORE and DATA.QUARANTINE are relative to.

    That is DATA.PATH_PREFIX; with DATA.FORMAT folders, which has no such key, the folder that holds the lists.
    """
    if cfg.DATA.FORMAT != "folders":
        return Path(cfg.DATA.PATH_PREFIX)
    return common_root([Path(cfg.DATA[key]) for key in LIST_KEYS if cfg.DATA[key]])


def _listed_videos(cfg: CfgNode, key: str) -> VideoList:
    if not cfg.DATA[key]:
        return VideoList((), (), (_not_set(cfg, key),))
    videos = _read_videos(cfg, key)
    if cfg.DATA.ALLOW_OUTSIDE:
        return videos
    is_root = cfg.DATA.FORMAT == "folders"
    root = Path(cfg.DATA[key] if is_root else cfg.DATA.PATH_PREFIX)
    outside = leading_out([record.path for record in videos.records], root)
    return replace(videos, problems=(*videos.problems, *links_problem(outside, root)))


def _read_videos(cfg: CfgNode, key: str) -> VideoList:
    path, root = Path(cfg.DATA[key]), Path(cfg.DATA.PATH_PREFIX)
    split: Split = "train" if key == "TRAIN_LIST" else "val"
    if cfg.DATA.FORMAT in PLAIN_READERS:
        return PLAIN_READERS[cfg.DATA.FORMAT](cfg, path, root, split)
    classes = build_classes(cfg)
    if classes.problems:
        return VideoList((), (), classes.problems)
    return CLASS_READERS[cfg.DATA.FORMAT](path, root, classes.numbers, split)


def build_classes(cfg: CfgNode) -> Classes:
    """The classes of DATA.CLASSES; for kinetics and folders without it, those of DATA.TRAIN_LIST."""
    train, num_classes = Path(cfg.DATA.TRAIN_LIST), cfg.MODEL.NUM_CLASSES
    if cfg.DATA.CLASSES:
        return read_classes(Path(cfg.DATA.CLASSES), num_classes)
    if cfg.DATA.FORMAT in {"ssv2", "ucf101"}:
        file = {"ssv2": "labels.json", "ucf101": "classInd.txt"}[cfg.DATA.FORMAT]
        return Classes(
            {}, (f"DATA.CLASSES is not set: add DATA.CLASSES FILE, the official {file}",)
        )
    if not cfg.DATA.TRAIN_LIST:
        return Classes({}, (_not_set(cfg, "TRAIN_LIST"),))
    if cfg.DATA.FORMAT == "kinetics":
        names, problems = kinetics_labels(train)
    else:
        names, problems = class_folders(train), folder_problems(train)
    return Classes({}, problems) if problems else number_classes(names, str(train), num_classes)


def _not_set(cfg: CfgNode, key: str) -> str:
    return f"DATA.{key} is not set: add DATA.{key} PATH, {LIST_FILES[cfg.DATA.FORMAT]}"
