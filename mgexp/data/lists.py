"""From the configuration to the videos of its lists, their classes, and those of them that are not used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from mgexp.config.keys import Config
from mgexp.data.files import Classes, number_classes, read_classes, read_text
from mgexp.data.folders import class_folders, common_root, folder_problems, read_folders
from mgexp.data.official import (
    kinetics_labels,
    read_charades,
    read_hmdb51,
    read_kinetics,
    read_ssv2,
    read_ucf101,
)
from mgexp.data.records import Record, Split, VideoList, read_list
from mgexp.errors import InputError, listed
from mgexp.run.files import is_file, is_folder, is_there
from mgexp.text import is_plain
from mgexp.video.paths import Root, are_usable, leading_out, links_problem


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


def _name(line: str, root: Root) -> str:
    """Relative to the root; a line that leads out of it stays as it is, and names no video."""
    path = root.path(line)
    return (root.relative(path) if path is not None else None) or line


MAX_LISTED = 10
"""Lines with a problem that are listed; of the others only the number."""
SEPARATOR = " "
"""Between path and label, where nothing else is said."""


@dataclass(frozen=True)
class Listing:
    """The videos of some lists, there or not: ``lists`` are the absolute paths of each, that of training first.

    ``root``: the folder that the paths in a clip store and in a quarantine are relative to.
    """

    root: Path
    lists: tuple[tuple[str, ...], ...]

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The absolute paths of all lists, each once, in their order."""
        return tuple(dict.fromkeys(path for one in self.lists for path in one))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The same relative to ``root``, each once; absolute where a video is not in it."""
        root = Root(self.root)
        return tuple(dict.fromkeys(root.relative(path) or path for path in self.paths))

    def present(self) -> Listing:
        """Those that are files and not empty. Raises InputError where there is none."""
        usable = dict(zip(self.paths, are_usable(self.paths), strict=True))
        if not any(usable.values()):
            remedy = "correct the folder of the videos (--root, DATA.PATH_PREFIX) or the lists"
            raise InputError(
                [f"none of the listed videos is there: {listed(self.paths, 1)}: {remedy}"]
            )
        kept = (tuple(path for path in one if usable[path]) for one in self.lists)
        return Listing(self.root, tuple(kept))


def read_listing(lists: Sequence[Path], root: Path, separator: str = SEPARATOR) -> Listing:
    """The videos of plain list files.

    A line is a path, ``separator`` and a label, as ``mgexp.data.records.read_list`` reads it; the label is
    not looked at. Raises InputError that lists every file and line that cannot be understood, and every
    path outside ``root``.
    """
    problems: list[str] = []
    if not is_folder(root):
        problems.append(f"--root {root.absolute()} is not a folder: give that of the videos")
    found = [_read(list_path, root, separator, problems) for list_path in lists]
    if not any(found) and not problems:
        problems.append(f"{', '.join(map(str, lists))}: no line holds a video")
    if problems:
        raise InputError(problems)
    listing = Listing(root, tuple(found))
    outside = [*links_problem(leading_out(listing.paths, root), root)]
    if outside:
        raise InputError([f"{outside[0]} (plain lists have no keys: name them in a YAML)"])
    return listing


def _read(list_path: Path, root: Path, separator: str, problems: list[str]) -> tuple[str, ...]:
    """The paths of one list; what is wrong with it is added to ``problems``."""
    text, wrong_file = read_text(list_path)
    inside = Root(root)
    found = [_path_of(line.strip(), inside, separator) for line in text.split("\n")]
    wrong = [number for number, path in enumerate(found, start=1) if path is None]
    problems += [*wrong_file, *_line_problems(list_path, wrong, root, separator)]
    return tuple(path for path in found if path)


def _path_of(line: str, inside: Root, separator: str) -> str | None:
    """The absolute path, empty for a blank line, None where the line is not in order."""
    if not line:
        return ""
    name, found, _ = line.rpartition(separator)
    return inside.path(name.strip()) if found and name.strip() and is_plain(name) else None


def _line_problems(
    list_path: Path, wrong: Sequence[int], root: Path, separator: str
) -> Sequence[str]:
    if not wrong:
        return []
    numbers = listed([str(number) for number in wrong], MAX_LISTED)
    return [
        f"{list_path}, lines {numbers}: not path{separator}label with a path below "
        f"{root.absolute()}: correct them, --root or --separator"
    ]


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

PlainReader = Callable[[Config, Path, Path, Split], VideoList]
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


def build_list(cfg: Config, key: str) -> VideoList:
    """The videos of DATA.``key``, TRAIN_LIST or VAL_LIST; those of DATA.QUARANTINE count as missing."""
    return without_quarantined(_listed_videos(cfg, key), build_quarantine(cfg))


def build_quarantine(cfg: Config) -> Quarantine:
    """The videos of DATA.QUARANTINE; none where that is not set."""
    root = videos_root(cfg)
    if not cfg.DATA.QUARANTINE:
        return Quarantine(Root(root))
    return read_quarantine(Path(cfg.DATA.QUARANTINE), root)


def quarantine_problems(cfg: Config, lists: Sequence[VideoList]) -> list[str]:
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


def build_listing(cfg: Config, problems: Sequence[str], with_quarantined: bool) -> Listing:
    """The videos of DATA.TRAIN_LIST and DATA.VAL_LIST, there or not; one of them may be empty.

    ``with_quarantined``: those of DATA.QUARANTINE too, whatever that file is. Raises InputError with
    ``problems``, those of the configuration, and all that is wrong with the lists.
    """
    given = {key: _listed_videos(cfg, key) for key in LIST_KEYS if getattr(cfg.DATA, key)}
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


def videos_root(cfg: Config) -> Path:
    """The folder that the paths in DATA.STORE and DATA.QUARANTINE are relative to.

    That is DATA.PATH_PREFIX; with DATA.FORMAT folders, which has no such key, the folder that holds the lists.
    """
    if cfg.DATA.FORMAT != "folders":
        return Path(cfg.DATA.PATH_PREFIX)
    return common_root(
        [Path(getattr(cfg.DATA, key)) for key in LIST_KEYS if getattr(cfg.DATA, key)]
    )


def _listed_videos(cfg: Config, key: str) -> VideoList:
    if not getattr(cfg.DATA, key):
        return VideoList((), (), (_not_set(cfg, key),))
    videos = _read_videos(cfg, key)
    if cfg.DATA.ALLOW_OUTSIDE:
        return videos
    is_root = cfg.DATA.FORMAT == "folders"
    root = Path(getattr(cfg.DATA, key) if is_root else cfg.DATA.PATH_PREFIX)
    outside = leading_out([record.path for record in videos.records], root)
    return replace(videos, problems=(*videos.problems, *links_problem(outside, root)))


def _read_videos(cfg: Config, key: str) -> VideoList:
    path, root = Path(getattr(cfg.DATA, key)), Path(cfg.DATA.PATH_PREFIX)
    split: Split = "train" if key == "TRAIN_LIST" else "val"
    if cfg.DATA.FORMAT in PLAIN_READERS:
        return PLAIN_READERS[cfg.DATA.FORMAT](cfg, path, root, split)
    classes = build_classes(cfg)
    if classes.problems:
        return VideoList((), (), classes.problems)
    return CLASS_READERS[cfg.DATA.FORMAT](path, root, classes.numbers, split)


def build_classes(cfg: Config) -> Classes:
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


def _not_set(cfg: Config, key: str) -> str:
    return f"DATA.{key} is not set: add DATA.{key} PATH, {LIST_FILES[cfg.DATA.FORMAT]}"
