"""The videos of a run's lists or of plain list files, without the videos of a quarantine."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from mgexp.config.check import cross_problems
from mgexp.config.keys import Config, DataKeys
from mgexp.config.load import in_fold, read_config
from mgexp.data.classes import Classes, number_classes, read_classes
from mgexp.data.formats import (
    HMDB51_FILE,
    class_folders,
    common_root,
    kinetics_labels,
    read_charades,
    read_folders,
    read_hmdb51,
    read_kinetics,
    read_list,
    read_ssv2,
    read_ucf101,
)
from mgexp.data.records import Record, Split, VideoList, VideoRecord
from mgexp.errors import InputError, listed, raise_problems
from mgexp.run.files import is_file, is_there
from mgexp.text import counted, escaped
from mgexp.video.paths import Root
from mgexp.video.store import StoreDir, is_gone

LIST_FILES = {
    "list": "a text file with a 'path label' line per video",
    "rawframes": "a text file with a 'path num_frames label' line per folder of images",
    "kinetics": "the official CSV",
    "ssv2": "the official JSON, train.json or validation.json",
    "charades": "the official CSV, Charades_v1_train.csv or Charades_v1_test.csv",
    "ucf101": "the official list, such as trainlist01.txt or testlist01.txt",
    "hmdb51": "the official split files, in quotes: 'FOLDER/*_test_split1.txt'",
    "folders": "a folder with a folder of videos for each class",
}
"""What DATA.TRAIN_LIST and DATA.VAL_LIST name, by DATA.FORMAT."""
CLASS_FILES = {"ssv2": "labels.json", "ucf101": "classInd.txt"}
"""The official file that DATA.CLASSES must name, by DATA.FORMAT."""
ListKey = Literal["TRAIN_LIST", "VAL_LIST"]
LIST_KEYS: tuple[ListKey, ...] = ("TRAIN_LIST", "VAL_LIST")
"""Keys of DATA that name lists, in the order in which tools take them."""


def build_list(cfg: Config, key: ListKey, with_quarantined: bool = False) -> VideoList:
    """Read the videos of DATA.``key``, TRAIN_LIST or VAL_LIST, with the reader of DATA.FORMAT.

    Videos in DATA.QUARANTINE count as missing. With ``with_quarantined``, keep them and do not read that file.
    A video that is gone exists if DATA.STORE has copies of it.
    """
    data, num_classes = in_fold(cfg).DATA, cfg.MODEL.NUM_CLASSES
    quarantine, unreadable = (frozenset[str](), []) if with_quarantined else _read_quarantine(data)
    listed_in: str = getattr(data, key)
    if not listed_in:
        return VideoList(problems=(_not_set(data, key), *unreadable))
    path, root = Path(listed_in), Path(data.PATH_PREFIX)
    split: Split = "train" if key == "TRAIN_LIST" else "val"
    classes = _classes_of(data, num_classes) if _names_classes(data) else Classes({})
    if classes.problems:
        return VideoList(problems=(*classes.problems, *unreadable))
    numbers, separator = classes.numbers, data.PATH_LABEL_SEPARATOR
    # Functions, so that only the reader of this format runs.
    readers: dict[str, Callable[[], VideoList]] = {
        "list": lambda: read_list(path, root, num_classes, separator, data.ALLOW_OUTSIDE),
        "rawframes": lambda: read_list(
            path, root, num_classes, separator, data.ALLOW_OUTSIDE, has_lengths=True
        ),
        "kinetics": lambda: read_kinetics(path, root, numbers, split),
        "ssv2": lambda: read_ssv2(path, root, numbers),
        "charades": lambda: read_charades(path, root, num_classes),
        "ucf101": lambda: read_ucf101(path, root, numbers),
        "hmdb51": lambda: read_hmdb51(path, root, num_classes, split),
        "folders": lambda: read_folders(path, numbers),
    }
    videos = readers[data.FORMAT]()
    if videos.missing and data.STORE:
        # Without a store, building the opener reports the problem.
        with suppress(InputError):
            copied = StoreDir(Path(data.STORE)).entries()
            videos = _with_copies(videos, copied, Root(videos_root(data)))
    kept, shut_out = _without(videos, quarantine, Root(videos_root(data)))
    # These videos count as missing. So DATA.MAX_UNUSABLE_SHARE also limits how many a quarantine
    # may take out.
    missing = (*videos.missing, *shut_out)
    return replace(kept, missing=missing, problems=(*videos.problems, *unreadable))


def _with_copies(videos: VideoList, copied: Container[str], root: Root) -> VideoList:
    """Let the missing videos that have copies in a store exist, each at the place where it was copied from."""
    sources = {}
    for path in videos.missing:
        for place in videos.places.get(path, (path,)):
            # An empty file is no video that is gone: the copies are of an earlier content.
            if root.name(place) in copied and is_gone(place):
                sources[path] = place
                break
    missing = tuple(path for path in videos.missing if path not in sources)
    gone = {*missing}
    records = tuple(
        replace(record, path=sources.get(record.path, record.path))
        for record in videos.listed
        if record.path not in gone
    )
    return replace(videos, records=records, missing=missing)


def _names_classes(data: DataKeys) -> bool:
    """Return whether the classes have names by which the reader, or `build_class_names`, knows them."""
    return bool(data.CLASSES) or data.FORMAT in {"kinetics", "ssv2", "ucf101", "folders"}


def build_class_names(cfg: Config) -> tuple[str, ...]:
    """Return the names of the classes 0, 1, …, each in one line. Return () if the data set has no names.

    The lists have no problems: `build_list` has read them.
    """
    data = in_fold(cfg).DATA
    numbers = _classes_of(data, cfg.MODEL.NUM_CLASSES).numbers if _names_classes(data) else {}
    if data.FORMAT == "hmdb51":
        pattern = Path(data.TRAIN_LIST)
        files = (HMDB51_FILE.fullmatch(path.name) for path in pattern.parent.glob(pattern.name))
        names = [match["class"] for match in files if match]
        numbers = number_classes(names, str(pattern), len(names)).numbers
    # A name of spaces would be an empty line in a file of names.
    lines = {number: escaped(name).strip() for name, number in numbers.items()}
    return tuple(lines[number] or f"class {number}" for number in sorted(lines))


def _classes_of(data: DataKeys, num_classes: int) -> Classes:
    """Number the classes by DATA.CLASSES. Without it, the formats kinetics and folders use the training list.

    The validation list would not do: a class may have no video in it, and then the numbers would differ.
    """
    if data.CLASSES:
        return read_classes(Path(data.CLASSES), num_classes)
    if data.FORMAT in CLASS_FILES:
        file = CLASS_FILES[data.FORMAT]
        return Classes({}, (f"DATA.CLASSES is not set: it names the official {file}",))
    if not data.TRAIN_LIST:
        return Classes({}, (_not_set(data, "TRAIN_LIST"),))
    train = Path(data.TRAIN_LIST)
    read_names = kinetics_labels if data.FORMAT == "kinetics" else class_folders
    names, problems = read_names(train)
    return Classes({}, problems) if problems else number_classes(names, str(train), num_classes)


def _not_set(data: DataKeys, key: ListKey) -> str:
    return f"DATA.{key} is not set: it names {LIST_FILES[data.FORMAT]}"


def videos_root(data: DataKeys) -> Path:
    """Return the folder that the paths in DATA.STORE and DATA.QUARANTINE are relative to.

    It is DATA.PATH_PREFIX. The format folders does not use that key: there it is the folder that holds the lists.
    """
    if data.FORMAT != "folders":
        return Path(data.PATH_PREFIX)
    return common_root([Path(path) for path in (data.TRAIN_LIST, data.VAL_LIST) if path])


def _read_quarantine(data: DataKeys) -> tuple[frozenset[str], list[str]]:
    """Read DATA.QUARANTINE: a path per line, relative to the root of the videos or absolute, in UTF-8.

    Return the names of its videos, as ``Root.name`` gives them, and what is wrong with the file; nothing if the
    key is not set.
    """
    if not data.QUARANTINE:
        return frozenset(), []
    path, root = Path(data.QUARANTINE), Root(videos_root(data))
    try:
        # Reading a device or a pipe may never end.
        if is_there(path) and not is_file(path):
            raise OSError("not a regular file")
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    # A file that is not UTF-8 raises ValueError.
    except (OSError, ValueError) as error:
        return frozenset(), [f"DATA.QUARANTINE {path.absolute()} cannot be read: {error}"]
    # A line that leads out of the root stays as it is, and names no video.
    names = (root.name(root.path(line) or line) for line in map(str.strip, lines) if line)
    return frozenset(names), []


def _without(
    videos: VideoList, quarantine: frozenset[str], root: Root
) -> tuple[VideoList, list[str]]:
    """Take the videos of a quarantine out of a list. Return the rest, and the taken videos that exist."""
    shut_out = {path for path in videos.paths if quarantine and root.name(path) in quarantine}
    records = tuple(record for record in videos.records if record.path not in shut_out)
    missing = tuple(path for path in videos.missing if path not in shut_out)
    existed = [record.path for record in videos.records if record.path in shut_out]
    return replace(videos, records=records, missing=missing), existed


def quarantine_problems(data: DataKeys, lists: Sequence[VideoList]) -> list[str]:
    """Report a DATA.QUARANTINE that names no video of ``lists``, perhaps because it belongs to another data set.

    ``lists`` are the training list and the validation list, because a quarantine may name videos of only one of
    them. If a list has problems, or if the quarantine is empty, nothing is reported.
    """
    names, _ = _read_quarantine(data)
    if not names or any(videos.problems for videos in lists):
        return []
    root = Root(videos_root(data))
    if any(root.name(path) in names for videos in lists for path in videos.paths):
        return []
    return [
        f"DATA.QUARANTINE {data.QUARANTINE}: none of its {len(names)} lines, such as "
        f"{min(names)!r}, is a video of DATA.TRAIN_LIST or DATA.VAL_LIST below {root.folder}"
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
    if both and len(both) == val.num_listed:
        problems.append(
            f"DATA.VAL_LIST: all {len(both)} validation videos are training videos too; tools/own_data.py splits "
            "a folder of videos"
        )
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
    labels, left = labels_of(listed_videos), labels_of(used)
    if not labels or 2 * len(left) > min(len(labels), len(used)):
        return []
    return [
        f"{key} = {len(used)} leaves videos of {len(left)} of {len(labels)} classes: shuffle the list"
    ]


def _label_problems(which: str, videos: VideoList) -> Iterator[str]:
    labels: dict[str, int] = {}
    twice = [
        f"{record.path} ({labels[record.path]} and {record.label})"
        for record in videos.records
        if isinstance(record, VideoRecord)
        and labels.setdefault(record.path, record.label) != record.label
    ]
    if twice:
        num = counted(len(twice), "video is", "videos are")
        yield f"{num} in the {which} list with two labels: {listed(twice, 3)}"


@dataclass(frozen=True)
class Listing:
    """The videos that a tool checks or copies, by list; the training list comes first.

    ``root``: the folder that the paths in a clip store and in a quarantine are relative to.
    """

    root: Path
    lists: tuple[VideoList, ...]

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The absolute paths of the videos of all lists, existing or missing, each once."""
        return tuple(dict.fromkeys(path for videos in self.lists for path in videos.paths))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of these videos in stores and quarantines (see ``Root.name``), each once."""
        return tuple(dict.fromkeys(map(Root(self.root).name, self.paths)))

    def present(self) -> Listing:
        """Return only the videos that exist. Raises InputError if there are none."""
        if not any(videos.records for videos in self.lists):
            more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
            raise InputError([f"none of the listed videos exists: {self.paths[0]}{more}"])
        return Listing(self.root, tuple(replace(videos, missing=()) for videos in self.lists))


def read_listing(yaml: Path, pairs: Sequence[str], with_quarantined: bool) -> Listing:
    """Read the videos of a row for a tool; ``pairs`` are KEY VALUE. Raises InputError with all problems."""
    cfg, problems = read_config(yaml, pairs)
    return build_listing(cfg, [*problems, *cross_problems(cfg)], with_quarantined)


def build_listing(cfg: Config, problems: Sequence[str], with_quarantined: bool) -> Listing:
    """Read the videos of DATA.TRAIN_LIST and DATA.VAL_LIST for a tool; one of these keys may be empty.

    Leave out the videos of DATA.QUARANTINE. With ``with_quarantined``, keep them and do not read
    that file, because the tool may be about to write it. Raises InputError with ``problems``, which
    the configuration has, and with all problems of the lists.
    """
    data = in_fold(cfg).DATA
    # Quarantined videos are read here and taken out below, so that they do not count as missing.
    given = {
        key: build_list(cfg, key, with_quarantined=True) for key in LIST_KEYS if getattr(data, key)
    }
    problems = [*problems, *(text for videos in given.values() for text in videos.problems)]
    if not given:
        problems.append(_not_set(data, "TRAIN_LIST"))
    quarantine: frozenset[str] = frozenset()
    if not with_quarantined:
        quarantine, unreadable = _read_quarantine(data)
        problems += unreadable
        # A quarantine may name videos of one list only, so it can be judged only with both lists.
        if len(given) == len(LIST_KEYS):
            problems += quarantine_problems(data, [*given.values()])
    raise_problems(problems)
    root_folder = videos_root(data)
    root = Root(root_folder)
    lists = (given.get(key, VideoList()) for key in LIST_KEYS)
    kept = Listing(root_folder, tuple(_without(videos, quarantine, root)[0] for videos in lists))
    if not kept.paths:
        raise InputError([f"DATA.QUARANTINE {data.QUARANTINE} names all videos of the lists"])
    return kept
