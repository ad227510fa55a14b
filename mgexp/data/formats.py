"""Readers of lists of videos: plain lines, five official formats, and a folder for each class.

Readers return ``Findings``, which hold all problems and look for the files of all videos, so that one message can
name what is wrong.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from multiprocessing.pool import ThreadPool
from pathlib import Path

from mgexp.data.classes import number_classes, read_text
from mgexp.data.records import Action, ActionRecord, Record, Span, Split, VideoList, VideoRecord
from mgexp.errors import InputError, collected, listed, raise_problems
from mgexp.run.files import is_folder, is_there, understanding
from mgexp.text import is_plain, shown
from mgexp.video.frame_folder import is_image
from mgexp.video.paths import Root

ENDINGS = (
    *(".3gp", ".asf", ".avi", ".f4v", ".flv", ".gif", ".m2ts", ".m2v"),
    *(".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".mxf"),
    *(".ogv", ".ts", ".vob", ".webm", ".wmv", ".y4m"),
)
"""Endings of video files that FFmpeg reads. Assumption: no data set of videos has other ones."""
CONVERTED = (".mp4", ".mkv", ".webm", ".avi")
"""Endings that videos of an official list may have in place of theirs: downloaders and converters write these."""

MAX_LISTED = 10
"""Messages name this many faults of one kind, and count the others."""

STAT_THREADS = 16
"""Threads that look for files. They wait for the disk, not for the processor. Assumption: 16
requests at once hide the latency of a network disk. Measured, 240,000 files on a local disk: 0.4 s,
and 0.3 s in one thread."""


class Findings:
    """What a reader finds: the videos of a list, and the faults of its entries.

    Paths are relative to ``root``. ``if_empty`` is the problem to report for a list without videos. In an official
    list, a video that is listed twice is a fault, and its file may have one of the endings ``CONVERTED``.
    ``problems`` concern whole files or folders.
    """

    def __init__(self, root: Path = Path(), if_empty: str = "", is_official: bool = True) -> None:
        self.root, self.if_empty, self.is_official = root, if_empty, is_official
        self.problems: list[str] = []
        self.videos: list[tuple[Record, tuple[str, ...]]] = []
        self._faults: dict[str, list[str]] = defaultdict(list)
        self._paths: set[str] = set()
        self._texts: dict[Path, str] = {}

    def add(self, place: str, record: Record, *elsewhere: str) -> None:
        """Add the video of an entry. Its file may also lie ``elsewhere`` (absolute paths)."""
        if record.path in self._paths and self.is_official:
            self.fault(place, "video listed twice", record.path)
        else:
            self._paths.add(record.path)
            self.videos.append((record, elsewhere))

    def fault(self, place: str, what: str, value: object) -> None:
        """Add a fault of the entry at ``place`` (file and line): what is wrong, and the value that is wrong."""
        self._faults[what].append(f"{place}: {what}: {shown(value)}")

    def text(self, path: Path) -> str:
        """Return the content of a file, which is read once; "" if it cannot be read."""
        if path not in self._texts:
            self._texts[path] = ""
            with collected(self.problems):
                self._texts[path] = read_text(path)
        return self._texts[path]

    def lines(self, path: Path) -> Iterator[tuple[str, str]]:
        """Yield (place, line) of each line that is not blank, without spaces around it."""
        # splitlines() would also cut at rarer characters, such as U+2028, which the name of a file may contain.
        for number, line in enumerate(self.text(path).split("\n"), start=1):
            if line.strip():
                yield f"{path}:{number}", line.strip()

    def rows(
        self, path: Path, *columns: str, separator: str = ","
    ) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield (place, row) of each row of a CSV that is not blank. Cells have no spaces around them.

        The first line names the columns, in any order; it may name more than ``columns``. If one of ``columns`` is
        missing, there are no rows. An absent cell is "".
        """
        # newline="": the csv module wants to see the line ends itself, since quoted cells may contain them.
        text = io.StringIO(self.text(path), newline="")
        reader = csv.DictReader(text, restval="", delimiter=separator, skipinitialspace=True)
        try:
            reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
            missing = [name for name in columns if name not in reader.fieldnames]
            for name in missing:
                self.fault(f"{path}:1", "column that is not there", name)
            for row in () if missing else reader:
                place = f"{path}:{reader.line_num}"
                cells = {name: row[name].strip() for name in reader.fieldnames}
                if extra := "".join(row.get(None, ())).strip():
                    self.fault(place, "cell behind the last column", extra)
                elif any(cells.values()):
                    yield place, cells
        except csv.Error as error:
            self.fault(f"{path}:{reader.line_num}", "table that cannot be read", str(error))

    def all_problems(self) -> list[str]:
        """Return ``problems``; if there are none, the first faults of each kind and the number of the others.

        If there are none either, a list without videos is the problem.
        """
        problems = list(self.problems)
        for what, messages in () if problems else self._faults.items():
            problems += messages[:MAX_LISTED]
            if len(messages) > MAX_LISTED:
                problems.append(f"{what}: ... and {len(messages) - MAX_LISTED} more")
        if self.if_empty and not problems and not self.videos:
            problems.append(self.if_empty)
        return problems

    def existing(self, has_copy: Callable[[str], bool] = lambda path: False) -> VideoList:
        """Find the file of each video: the first of its places with a file that is not empty.

        In place of the file there may be a folder of images. Its name may lack the ending of the file. A video
        without any of these may have a copy of one of its places. Otherwise it is missing, and is named by its
        usual place.
        """
        if not is_folder(self.root):
            what = "is not a folder" if is_there(self.root) else "does not exist"
            self.problems.append(f"DATA.PATH_PREFIX {self.root.absolute()}: {what}")
        if self.problems:
            return VideoList(problems=tuple(self.problems))
        problems = self.all_problems()
        unfit = [record.path for record, _ in self.videos if not is_plain(record.path)]
        # Such names would break the lines of logs and of a quarantine.
        if unfit:
            names = listed(unfit, 3)
            problems.append(f"names with control characters, or bytes that are no UTF-8: {names}")
        endings = CONVERTED if self.is_official else ()

        def places(video: tuple[Record, tuple[str, ...]]) -> tuple[str, ...]:
            return _places((video[0].path, *video[1]), endings)

        # Each thread reserves address space, and a short list needs few of them.
        with ThreadPool(min(STAT_THREADS, 1 + len(self.videos) // 100)) as pool:
            usable_places = pool.map(lambda video: _first_usable(places(video)), self.videos)
        records, missing = [], []
        for video, usable in zip(self.videos, usable_places, strict=True):
            place = usable or next(filter(has_copy, places(video)), None)
            if place is None:
                missing.append(video[0].path)
            else:
                records.append(replace(video[0], path=place.rstrip("/")))  # type: ignore[type-var]
        return VideoList(tuple(records), tuple(missing), tuple(problems))


def _places(files: Sequence[str], endings: Sequence[str]) -> tuple[str, ...]:
    """Return the places of a video: files, the same with other ``endings``, and folders of images without one."""
    parts = (os.path.splitext(path) for path in files)  # noqa: PTH122 (240,000 videos)
    stems = [stem for stem, ending in parts if ending.lower() in ENDINGS]
    # With a slash at its end, a path finds folders only.
    others = (f"{stem}{ending}" for ending in (*endings, "/") for stem in stems)
    return tuple(dict.fromkeys((*files, *others)))


def _first_usable(places: Sequence[str]) -> str | None:
    """Return the first place that is a file or a folder and not empty; None if no place is."""
    for path in places:
        # A path with a NUL character raises ValueError.
        with suppress(OSError, ValueError):
            status = os.stat(path)  # noqa: PTH116 (240,000 files)
            if stat.S_ISDIR(status.st_mode):
                with os.scandir(path) as names:
                    if any(names):
                        return path
            elif stat.S_ISREG(status.st_mode) and status.st_size:
                return path
    return None


def read_list(
    list_path: Path,
    root: Path,
    num_classes: int | None,
    separator: str = " ",
    has_lengths: bool = False,
    has_many_labels: bool = False,
) -> Findings:
    """Read a list with a ``path label`` line for each video, as Kinetics users have.

    A line is split at the last ``separator``, so that paths may contain it too; a space stands for spaces and
    tabs. Blank lines, Windows line ends, a UTF-8 byte order mark and a first line that ends in "label" are fine.
    Paths are relative to ``root`` or absolute. Labels are integers in [0, num_classes); without ``num_classes``
    they are ignored, and all videos get class 0.
    A video may come in several lines. With ``has_lengths`` a line is ``path num_frames label``, as in MMAction2's
    lists of folders of images. The folders tell their numbers of images themselves, so that number is only looked
    at to see that the line has three parts. With ``has_many_labels`` a line is ``path label label …``, also as in
    MMAction2.

    A list may also be a table; see ``is_table`` and ``table_entries``.
    """
    inside = Root(root)
    listed = Findings(root, f"list file {list_path} is empty", is_official=False)
    text = listed.text(list_path)
    if not has_lengths and is_table(text, separator, num_classes or 0, has_many_labels):
        entries = table_entries(listed, list_path, separator, has_many_labels)
    else:
        entries = line_entries(listed, list_path, separator, has_lengths, has_many_labels)
    for place, name, texts, part in entries:
        path = inside.path(name)
        labels = [int(text) if INTEGER.fullmatch(text) else -1 for text in texts]
        if num_classes is not None and not all(0 <= label < num_classes for label in labels):
            what = f"label that is no integer from 0 to MODEL.NUM_CLASSES - 1 = {num_classes - 1}"
            listed.fault(place, what, " ".join(texts))
        elif has_many_labels:
            actions = tuple(Action(label, 0.0, math.inf) for label in labels)
            listed.add(place, ActionRecord(path, actions, num_classes or 1, part))
        else:
            listed.add(place, VideoRecord(path, 0 if num_classes is None else labels[0], part))
    return listed


INTEGER = re.compile(r"\s*[+-]?[0-9]{1,18}\s*")
"""18 digits at most, because Python refuses to convert a text of thousands of digits."""

Entry = tuple[str, str, list[str], Span | None]
"""An entry of a list: file and line, path, labels as they are written, and the seconds of a stretch."""


def line_entries(
    listed: Findings, list_path: Path, separator: str, has_lengths: bool, has_many_labels: bool
) -> Iterator[Entry]:
    """Yield the entries of a list of lines; ``listed`` gets the lines that have another form."""
    for number, (place, line) in enumerate(listed.lines(list_path)):
        name, is_split, text = split_last(line, separator)
        # Tools that write tables begin with a line of names.
        if number == 0 and text.strip().lower() == "label":
            continue
        if has_lengths:
            name, is_split, length = split_last(name, separator)
            if not re.fullmatch(r"\s*[0-9]+\s*", length):
                what = f"line that is not path{separator}num_frames{separator}label"
                listed.fault(place, what, line)
                continue
        texts = [text]
        while has_many_labels and INTEGER.fullmatch(split_last(name, separator)[2]):
            name, _, text = split_last(name, separator)
            texts.insert(0, text)
        if is_split and name.strip():
            yield place, name.strip(), texts, None
        else:
            what = f"line without DATA.PATH_LABEL_SEPARATOR {separator!r} and a label"
            listed.fault(place, what, line)


def is_table(
    text: str, separator: str, num_classes: int = 0, has_many_labels: bool = False
) -> bool:
    """Tell whether the first line of a list names the columns of a table: see ``table_entries``."""
    names = [name.strip() for name in text.partition("\n")[0].split(separator)]
    has_classes = len(names) == 1 + num_classes and not any(map(INTEGER.fullmatch, names[1:]))
    is_named = {"start", "end", "label"} <= {*names} or (has_many_labels and has_classes)
    # The csv module takes no longer separator.
    return is_named and len(separator) == 1


def table_entries(
    listed: Findings, list_path: Path, separator: str, has_many_labels: bool
) -> Iterator[Entry]:
    """Yield the entries of a table, as ``csv`` reads it; the first column is the path. ``listed`` gets wrong rows.

    With the columns ``start``, ``end`` and ``label``, a row is a stretch of a video, in seconds. It may have many
    labels with spaces between. Otherwise there is a column for each class, with 1 if the video shows it, else 0.
    """
    for place, row in listed.rows(list_path, separator=separator):
        name, *cells = row.values()
        if not name:
            listed.fault(place, "row without a video", ", ".join(cells))
        elif "start" in row:
            texts = row["label"].split() if has_many_labels else [row["label"]]
            if stretch := stretch_of(row):
                yield place, name, texts, stretch
            else:
                listed.fault(place, "stretch that does not end after its start", ", ".join(cells))
        elif {*cells} <= {"0", "1"}:
            yield place, name, [str(n) for n, cell in enumerate(cells) if cell == "1"], None
        else:
            listed.fault(place, "cell of a class that is neither 0 nor 1", ", ".join(cells))


def stretch_of(row: Mapping[str, str]) -> Span | None:
    """Return the seconds at which the stretch of a row starts and ends; None if they are not in this order."""
    with suppress(ValueError):
        start, end = float(row["start"]), float(row["end"])
        if 0 <= start < end:
            return start, end
    return None


def split_last(line: str, separator: str) -> tuple[str, str, str]:
    """Split as ``str.rpartition`` does. A space stands for spaces and tabs."""
    parts = line.rsplit(None if separator == " " else separator, 1)
    return (parts[0], separator, parts[1]) if len(parts) == 2 else ("", "", line)


def read_kinetics(
    list_path: Path, root: Path, classes: Mapping[str, int], split: Split
) -> Findings:
    """Read an official CSV with the columns label, youtube_id, time_start and time_end; it may have others.

    The file of a clip is ``<id>_<start:06d>_<end:06d>.mp4``. It lies in ``root``, in a folder ``train`` or
    ``val`` (also ``validate``) of ``root``, or in a folder of its class in any of these. The folder of a class has
    the name of the label, perhaps with _ for spaces. ``classes``: label → number. If there is a column ``split``,
    rows of training are for ``split`` "train" only, and all other rows for "val" only. The same clip must not be
    in two rows, but two clips of one YouTube video may be.
    """
    inside, listed = Root(root), Findings(root, f"list file {list_path} is empty")

    # With a cache, the disk is asked once for each of 400 labels, and not for each of 240,000 rows.
    @cache
    def folders(label: str) -> tuple[str, ...]:
        """Return the root folder and all existing folders inside it that may hold clips of ``label``."""
        splits = ("", "train") if split == "train" else ("", "val", "validate")
        of_class = ("", label, label.replace(" ", "_"))
        names = ("/".join(filter(None, (top, name))) for name in of_class for top in splits)
        there = (path for path in map(inside.path, names) if Path(path).is_dir())
        return tuple(dict.fromkeys((inside.folder, *there)))

    columns = ("label", "youtube_id", "time_start", "time_end")
    for place, row in listed.rows(list_path, *columns):
        label, video = row["label"], row["youtube_id"]
        # Tools that read and write tables turn whole seconds into floats, such as 417.0.
        times = [
            re.fullmatch(r"([0-9]{1,6})(?:\.0*)?", row[f"time_{end}"]) for end in ("start", "end")
        ]
        is_training = row.get("split", "").lower() in {"train", "training"}
        if label not in classes:
            listed.fault(place, "label of no class", label)
        elif not re.fullmatch(r"[A-Za-z0-9_-]{11}", video):
            listed.fault(place, "youtube_id in another form", video)
        elif not all(times):
            value = f"{row['time_start']},{row['time_end']}"
            listed.fault(place, "time that is no whole number of seconds", value)
        elif row.get("split") and is_training != (split == "train"):
            listed.fault(place, "row of the other split", row["split"])
        else:
            start, end = (int(time[1]) for time in times if time)
            name = f"{video}_{start:06d}_{end:06d}.mp4"
            first, *others = (f"{folder}/{name}" for folder in folders(label))
            listed.add(place, VideoRecord(first, classes[label]), *others)
    return listed


def kinetics_labels(list_path: Path) -> tuple[str, ...]:
    """Return the different labels of an official CSV, sorted. Raises InputError."""
    listed = Findings()
    labels = {row["label"] for _, row in listed.rows(list_path, "label")}
    raise_problems(listed.all_problems())
    return tuple(sorted(labels - {""}))


def read_ssv2(list_path: Path, root: Path, classes: Mapping[str, int]) -> Findings:
    """Read an official list of Something-Something V2: a JSON array of objects with ``id`` and ``template``.

    ``classes`` has the templates without the square brackets of their placeholders: "Pushing [something] from
    left to right" is "Pushing something from left to right" in labels.json. The file is ``<id>.webm`` in
    ``root``. The same id must not be in two entries.
    """
    inside, listed = Root(root), Findings(root, f"list file {list_path} is empty")
    entries: list[object] = []
    with collected(listed.problems), understanding(list_path, "a JSON array of videos"):
        content = json.loads(read_text(list_path))
        if not isinstance(content, list):
            raise TypeError(f"a {type(content).__name__}")
        entries = content
    for number, entry in enumerate(entries, start=1):
        place = f"{list_path}, entry {number}"
        if not isinstance(entry, dict):
            listed.fault(place, "entry that is no object", entry)
            continue
        name, template = str(entry.get("id", "")), str(entry.get("template", ""))
        label = classes.get(template.replace("[", "").replace("]", ""))
        # isdigit() alone would accept the digits of every script.
        if not (name.isascii() and name.isdigit()):
            listed.fault(place, "entry without an id that is a whole number", name)
        elif label is None:
            listed.fault(place, "template of no class", template)
        else:
            listed.add(place, VideoRecord(f"{inside.folder}/{name}.webm", label))
    return listed


def read_charades(list_path: Path, root: Path, num_classes: int) -> Findings:
    """Read an official CSV of Charades with the columns ``id`` and ``actions``; it may have others.

    ``actions`` is "c092 11.90 21.20;c147 0.00 12.60": class 92 from 11.9 to 21.2 s and class 147 from 0 to
    12.6 s. A video without actions is kept as a negative example of all classes, as PySlowFast does; the official
    evaluation leaves it out. The file is ``<id>.mp4`` in ``root``. The same id must not be in two
    rows.
    """
    inside, listed = Root(root), Findings(root, f"list file {list_path} is empty")
    number = r"([0-9]+(?:\.[0-9]+)?)"
    for place, row in listed.rows(list_path, "id", "actions"):
        actions = []
        for text in filter(None, map(str.strip, row["actions"].split(";"))):
            match = re.fullmatch(rf"c([0-9]{{3}})\s+{number}\s+{number}", text)
            if match is None:
                listed.fault(place, "action in another form than c092 11.90 21.20", text)
                continue
            action = Action(int(match[1]), float(match[2]), float(match[3]))
            if action.label >= num_classes:
                what = f"action of no class below MODEL.NUM_CLASSES {num_classes}"
                listed.fault(place, what, text)
            elif action.end_seconds < action.start_seconds:
                listed.fault(place, "action that ends before it starts", text)
            else:
                actions.append(action)
        if re.fullmatch(r"[\w-]+", row["id"]):
            path = f"{inside.folder}/{row['id']}.mp4"
            listed.add(place, ActionRecord(path, tuple(actions), num_classes))
        else:
            listed.fault(place, "id in another form", row["id"])
    videos = [record for record, _ in listed.videos if isinstance(record, ActionRecord)]
    if videos and not any(record.actions for record in videos):
        listed.fault(str(list_path), "no video has an action in the column", "actions")
    return listed


UCF101_LINE = re.compile(r"(?P<folder>[^/\s]+)/(?P<name>[^/]+?\.\w+)(?:\s+(?P<number>[0-9]{1,9}))?")


def read_ucf101(list_path: Path, root: Path, classes: Mapping[str, int]) -> Findings:
    """Read a list of ``Class/name.avi`` lines, with a number (trainlist) or without (testlist).

    The folder is the class, and ``classes`` has its number. If a line has a number too, both must
    agree. Numbers in the file count from 1, as in classInd.txt. The same video must not be in two
    lines.
    """
    inside, listed = Root(root), Findings(root, f"list file {list_path} is empty")
    for place, line in listed.lines(list_path):
        match = UCF101_LINE.fullmatch(line)
        if match is None:
            listed.fault(place, "line in another form than Class/v_Class_g01_c01.avi", line)
            continue
        path = inside.path(f"{match['folder']}/{match['name']}")
        label = classes.get(match["folder"])
        if label is None:
            listed.fault(place, "folder of no class", match["folder"])
        elif match["number"] and int(match["number"]) != label + 1:
            listed.fault(place, "number of another class", line)
        else:
            listed.add(place, VideoRecord(path, label))
    return listed


HMDB51_FILE = re.compile(r"(?P<class>.+)_test_split(?P<number>[0-9]+)\.txt")
HMDB51_LINE = re.compile(r"(?P<name>.+\S)\s+(?P<use>[012])")
HMDB51_USE: dict[Split, str] = {"train": "1", "val": "2"}
"""The number in a line that marks a video of a list; 0 marks a video of neither list."""


def read_hmdb51(pattern: Path, root: Path, num_classes: int, split: Split) -> Findings:
    """Read the split files that ``pattern`` matches, such as FOLDER/*_test_split1.txt: one file for each class.

    A line names a video of the file's class, and 1 for training, 2 for test ("val" here) or 0 for neither.
    Classes are numbered in the order of their names. The file is ``root/CLASS/NAME``. The same video must not
    come twice, and the files must be of one split.
    """
    if_empty = f"list files {pattern}: no video is marked {HMDB51_USE[split]}"
    inside, listed = Root(root), Findings(root, if_empty)
    files: dict[str, Path] = {}
    labels: dict[str, int] = {}
    with collected(listed.problems):
        files = hmdb51_files(pattern)
        labels = number_classes(sorted(files), str(pattern), num_classes)
    wanted: set[str] = set()
    for name, label in labels.items():
        for place, line in listed.lines(files[name]):
            match = HMDB51_LINE.fullmatch(line)
            if match is None:
                listed.fault(place, "line without 0, 1 or 2 behind the name", line)
            else:
                path = inside.path(f"{name}/{match['name']}")
                # Videos for the other use are added too, so that one message names the faults of all lines.
                listed.add(place, VideoRecord(path, label))
                if match["use"] == HMDB51_USE[split]:
                    wanted.add(path)
    listed.videos = [video for video in listed.videos if video[0].path in wanted]
    return listed


def hmdb51_files(pattern: Path) -> dict[str, Path]:
    """Return the split file of each class. Raises InputError if there are none, or files of several splits."""
    try:
        files = sorted(pattern.parent.glob(pattern.name)) if is_folder(pattern.parent) else []
    # An empty pattern raises ValueError, and a name that is too long raises OSError.
    except (OSError, ValueError):
        files = []
    matches = {path: HMDB51_FILE.fullmatch(path.name) for path in files}
    problems = [
        f"{path.parent}: file that is not called CLASS_test_splitN.txt: {shown(path.name)}"
        for path, match in matches.items()
        if match is None
    ]
    splits = sorted({match["number"] for match in matches.values() if match})
    if not files:
        problems.append(f"no file is called {pattern.absolute()}")
    if len(splits) > 1:
        problems.append(f"{pattern} takes files of several splits: {', '.join(splits)}")
    raise_problems(problems)
    return {match["class"]: path for path, match in matches.items() if match}


def read_folders(folder: Path, classes: Mapping[str, int]) -> Findings:
    """Read the videos ``folder/CLASS/NAME`` in the order of their paths. An empty file counts as missing.

    A folder of images is a video too.

    ``classes``: name of a folder → number. Hidden files (.DS_Store) are skipped. It is a problem if
    any other file lacks the ending of a video (in small or capital letters), or if a folder has no
    class or no video. Raises InputError for a folder that cannot be read.
    """
    listed = Findings(folder, f"folder {folder} holds no video")
    class_folders(folder)
    try:
        # Paths are absolute and without "..", as in all formats, because clip stores and quarantines
        # compare them as text.
        for of_class in visible_in(Path(os.path.normpath(folder.absolute()))):
            if not of_class.is_dir():
                what = "file outside the folders of the classes"
                listed.fault(str(folder), what, of_class.name)
            elif of_class.name not in classes:
                listed.fault(str(folder), "folder of no class", of_class.name)
            else:
                _add_class(listed, of_class, classes[of_class.name])
    except OSError as error:
        raise InputError([unreadable(error)]) from error
    return listed


def _add_class(listed: Findings, folder: Path, label: int) -> None:
    num_before = len(listed.videos)
    for file in visible_in(folder):
        if file.is_dir():
            what = "folder in the folder of a class"
            is_video = any(is_image(image.name) for image in file.iterdir())
        else:
            what = "file without the ending of a video"
            is_video = file.suffix.lower() in ENDINGS
        if is_video:
            listed.add(str(folder), VideoRecord(str(file), label))
        else:
            listed.fault(str(folder), what, file.name)
    if len(listed.videos) == num_before:
        listed.fault(str(folder.parent), "folder without a video", folder.name)


def unreadable(error: OSError) -> str:
    return f"{error.filename} cannot be read: {error.strerror}"


def class_folders(folder: Path) -> tuple[str, ...]:
    """Return the names of the folders in ``folder`` that are not hidden. Raises InputError."""
    if not (is_folder(folder) and os.access(folder, os.R_OK | os.X_OK)):
        what = "is not a folder that can be read" if is_there(folder) else "does not exist"
        raise InputError([f"folder of videos {folder.absolute()} {what}"])
    return tuple(path.name for path in visible_in(folder) if path.is_dir())


def visible_in(folder: Path) -> list[Path]:
    """List what a folder holds in the order of the names, without hidden files such as .DS_Store."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
