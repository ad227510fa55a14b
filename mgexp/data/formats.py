"""Readers of lists of videos: plain lines, five official formats, and a folder for each class.

Readers raise no errors. A ``VideoList`` holds all problems and all missing videos, so that one message can name
them all.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from mgexp.data.classes import number_classes, read_text
from mgexp.data.entries import (
    ENDINGS,
    Bad,
    BadPlaces,
    Entry,
    Listed,
    Parse,
    bad_messages,
    existing_videos,
    parse_entries,
)
from mgexp.data.records import Action, ActionRecord, Split, VideoList, VideoRecord
from mgexp.errors import InputError, collected, raise_problems
from mgexp.run.files import is_folder, is_there
from mgexp.text import shown
from mgexp.video.frame_folder import is_image
from mgexp.video.paths import Root


def _read(
    list_path: Path,
    root: Path,
    split: Callable[[str, Path], Iterator[tuple[str, Entry | Bad]]],
    parse: Parse[Entry],
    may_repeat: bool = False,
) -> VideoList:
    """Read a list file: ``split`` cuts its text into entries, and ``parse`` turns each entry into a video."""
    problems: list[str] = []
    with collected(problems):
        text = read_text(list_path)
    problems += root_problems(root)
    if problems:
        return VideoList(problems=tuple(problems))
    videos, bad = parse_entries(split(text, list_path), parse, may_repeat)
    return existing_videos(videos, bad_messages(bad), f"list file {list_path} is empty")


def root_problems(root: Path) -> Iterator[str]:
    """Report a root folder that does not exist or is not a folder."""
    if not is_folder(root):
        what = "is not a folder" if is_there(root) else "does not exist"
        yield f"DATA.PATH_PREFIX {root.absolute()}: {what}"


def _lines(text: str, path: Path) -> Iterator[tuple[str, str]]:
    """Yield (place, line) of each line that is not blank, without spaces around it."""
    # splitlines() would also cut at rarer characters, such as U+2028, which the name of a file may contain.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{path}:{number}", line.strip()


def _csv_rows(
    text: str, path: Path, columns: Sequence[str]
) -> Iterator[tuple[str, dict[str, str] | Bad]]:
    """Yield (place, row) of each row that is not blank. Cells have no spaces around them; absent cells are "".

    The first line names the columns, in any order; it may name more than ``columns``. If one of ``columns`` is
    missing, there are no rows.
    """
    # newline="": the csv module wants to see the line ends itself, since quoted cells may contain them.
    reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
    try:
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        missing = [name for name in columns if name not in reader.fieldnames]
        for name in missing:
            yield f"{path}:1", Bad("column that is not there", name)
        for row in () if missing else reader:
            place = f"{path}:{reader.line_num}"
            cells = {name: row[name].strip() for name in reader.fieldnames}
            if extra := "".join(row.get(None, ())).strip():
                yield place, Bad("cell behind the last column", extra)
            elif any(cells.values()):
                yield place, cells
    except csv.Error as error:
        yield f"{path}:{reader.line_num}", Bad("table that cannot be read", str(error))


def read_list(
    list_path: Path,
    root: Path,
    num_classes: int | None,
    separator: str = " ",
    allow_outside: bool = False,
    has_lengths: bool = False,
) -> VideoList:
    """Read a list with a ``path label`` line for each video, as Kinetics users have.

    A line is split at the last ``separator``, so that paths may contain it too. Blank lines, Windows line ends
    and a UTF-8 byte order mark are fine. Paths are relative to ``root``, or absolute below it; with
    ``allow_outside`` they may lead anywhere. Labels are integers in [0, num_classes). If ``num_classes`` is None,
    labels are ignored, and all videos get class 0. A video may come in several lines. With ``has_lengths`` a line
    is ``path num_frames label``, as in MMAction2's lists of folders of images. The folders tell their numbers of
    images themselves, so that number is only looked at to see that the line has three parts.
    """
    inside = Root(root, allow_outside)

    def parse(line: str) -> Iterator[Listed | Bad]:
        name, is_split, text = line.rpartition(separator)
        if has_lengths:
            name, is_split, length = name.rpartition(separator)
            if not re.fullmatch(r"\s*[0-9]+\s*", length):
                yield Bad(f"line that is not path{separator}num_frames{separator}label", line)
                return
        # 18 digits at most, because Python refuses to convert a text of thousands of digits.
        is_integer = re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text) is not None
        label = int(text) if num_classes is not None and is_integer else 0
        path = inside.path(name.strip())
        if not is_split or not name.strip():
            yield Bad(f"line without DATA.PATH_LABEL_SEPARATOR {separator!r} and a label", line)
        elif num_classes is not None and not (is_integer and 0 <= label < num_classes):
            yield Bad(f"label that is no integer below MODEL.NUM_CLASSES {num_classes}", text)
        elif path is None:
            where = f"path outside DATA.PATH_PREFIX {root.absolute()} without DATA.ALLOW_OUTSIDE"
            yield Bad(where, name)
        else:
            yield Listed(VideoRecord(path, label))

    return _read(list_path, root, _lines, parse, may_repeat=True)


def read_kinetics(
    list_path: Path, root: Path, classes: Mapping[str, int], split: Split
) -> VideoList:
    """Read an official CSV with the columns label, youtube_id, time_start and time_end; it may have others.

    The file of a clip is ``<id>_<start:06d>_<end:06d>.mp4``. It lies in ``root``, in a folder ``train`` or
    ``val`` (also ``validate``) of ``root``, or in a folder of its class in any of these. The folder of a class has
    the name of the label, perhaps with _ for spaces. ``classes``: label → number. If there is a column ``split``,
    rows of training are for ``split`` "train" only, and all other rows for "val" only. The same clip must not be
    in two rows, but two clips of one YouTube video may be.
    """
    inside = Root(root)

    # With a cache, the disk is asked once for each of 400 labels, and not for each of 240,000 rows.
    @cache
    def folders(label: str) -> tuple[str, ...]:
        """Return the root folder and all existing folders inside it that may hold clips of ``label``."""
        splits = ("", "train") if split == "train" else ("", "val", "validate")
        of_class = ("", label, label.replace(" ", "_"))
        names = ("/".join(filter(None, (top, name))) for name in of_class for top in splits)
        there = (path for path in map(inside.path, names) if path and Path(path).is_dir())
        return tuple(dict.fromkeys((inside.folder, *there)))

    def parse(row: dict[str, str]) -> Iterator[Listed | Bad]:
        label, video = row["label"], row["youtube_id"]
        # Tools that read and write tables turn whole seconds into floats, such as 417.0.
        times = [
            re.fullmatch(r"([0-9]{1,6})(?:\.0*)?", row[f"time_{end}"]) for end in ("start", "end")
        ]
        is_training = row.get("split", "").lower() in {"train", "training"}
        if label not in classes:
            yield Bad("label of no class", label)
        elif not re.fullmatch(r"[A-Za-z0-9_-]{11}", video):
            yield Bad("youtube_id in another form", video)
        elif not all(times):
            value = f"{row['time_start']},{row['time_end']}"
            yield Bad("time that is no whole number of seconds", value)
        elif row.get("split") and is_training != (split == "train"):
            yield Bad("row of the other split", row["split"])
        else:
            start, end = (int(time[1]) for time in times if time)
            name = f"{video}_{start:06d}_{end:06d}.mp4"
            first, *others = (f"{folder}/{name}" for folder in folders(label))
            yield Listed(VideoRecord(first, classes[label]), tuple(others))

    split_rows = partial(_csv_rows, columns=("label", "youtube_id", "time_start", "time_end"))
    return _read(list_path, root, split_rows, parse)


def kinetics_labels(list_path: Path) -> tuple[str, ...]:
    """Return the different labels of an official CSV, sorted. Raises InputError."""
    rows = list(_csv_rows(read_text(list_path), list_path, ("label",)))
    bad = [(place, row) for place, row in rows if isinstance(row, Bad)]
    raise_problems([*bad_messages(bad)])
    labels = {row["label"] for _, row in rows if not isinstance(row, Bad)} - {""}
    return tuple(sorted(labels))


def read_ssv2(list_path: Path, root: Path, classes: Mapping[str, int]) -> VideoList:
    """Read an official list of Something-Something V2: a JSON array of objects with ``id`` and ``template``.

    ``classes`` has the templates without the square brackets of their placeholders: "Pushing [something] from
    left to right" is "Pushing something from left to right" in labels.json. The file is ``<id>.webm`` in
    ``root``, or ``<id>.mp4``. The same id must not be in two entries.
    """
    inside = Root(root)

    def split(text: str, path: Path) -> Iterator[tuple[str, Any]]:
        try:
            entries = json.loads(text)
        # Lists that are nested too deeply raise RecursionError.
        except (ValueError, RecursionError) as error:
            yield str(path), Bad("list that is not JSON", str(error))
            return
        if not isinstance(entries, list):
            yield str(path), Bad("list that is no JSON array of videos", type(entries).__name__)
            return
        for number, entry in enumerate(entries, start=1):
            yield f"{path}, entry {number}", entry

    def parse(entry: Any) -> Iterator[Listed | Bad]:  # noqa: ANN401 - any JSON value
        if not isinstance(entry, dict):
            yield Bad("entry that is no object", entry)
            return
        name, template = str(entry.get("id", "")), str(entry.get("template", ""))
        label = classes.get(template.replace("[", "").replace("]", ""))
        # isdigit() alone would accept the digits of every script.
        if not (name.isascii() and name.isdigit()):
            yield Bad("entry without an id that is a whole number", name)
        elif label is None:
            yield Bad("template of no class", template)
        else:
            webm, mp4 = (f"{inside.folder}/{name}{ending}" for ending in (".webm", ".mp4"))
            yield Listed(VideoRecord(webm, label), (mp4,))

    return _read(list_path, root, split, parse)


def read_charades(list_path: Path, root: Path, num_classes: int) -> VideoList:
    """Read an official CSV of Charades with the columns ``id`` and ``actions``; it may have others.

    ``actions`` is "c092 11.90 21.20;c147 0.00 12.60": class 92 from 11.9 to 21.2 s and class 147 from 0 to
    12.6 s. A video without actions is kept as a negative example of all classes, as PySlowFast does; the official
    evaluation leaves it out. The file is ``<id>.mp4`` in ``root``. The same id must not be in two
    rows.
    """
    inside, has_actions = Root(root), False

    def action_of(text: str) -> Action | Bad:
        number = r"([0-9]+(?:\.[0-9]+)?)"
        match = re.fullmatch(rf"c([0-9]{{3}})\s+{number}\s+{number}", text)
        if match is None:
            return Bad("action in another form than c092 11.90 21.20", text)
        action = Action(int(match[1]), float(match[2]), float(match[3]))
        if action.label >= num_classes:
            return Bad(f"action of no class below MODEL.NUM_CLASSES {num_classes}", text)
        if action.end_seconds < action.start_seconds:
            return Bad("action that ends before it starts", text)
        return action

    def parse(row: dict[str, str]) -> Iterator[Listed | Bad]:
        nonlocal has_actions
        parts = [action_of(part.strip()) for part in row["actions"].split(";") if part.strip()]
        yield from (part for part in parts if isinstance(part, Bad))
        actions = tuple(part for part in parts if isinstance(part, Action))
        if re.fullmatch(r"[A-Za-z0-9]+", row["id"]):
            has_actions = has_actions or bool(actions)
            yield Listed(ActionRecord(f"{inside.folder}/{row['id']}.mp4", actions, num_classes))
        else:
            yield Bad("id in another form", row["id"])

    videos = _read(list_path, root, partial(_csv_rows, columns=("id", "actions")), parse)
    if videos.num_listed and not has_actions:
        problem = f"list file {list_path}: no video has an action"
        return replace(videos, problems=(*videos.problems, problem))
    return videos


UCF101_LINE = re.compile(r"(?P<folder>[^/\s]+)/(?P<name>[^/]+?\.avi)(?:\s+(?P<number>[0-9]{1,9}))?")


def read_ucf101(list_path: Path, root: Path, classes: Mapping[str, int]) -> VideoList:
    """Read a list of ``Class/name.avi`` lines, with a number (trainlist) or without (testlist).

    The folder is the class, and ``classes`` has its number. If a line has a number too, both must
    agree. Numbers in the file count from 1, as in classInd.txt. The same video must not be in two
    lines.
    """
    inside = Root(root)

    def parse(line: str) -> Iterator[Listed | Bad]:
        match = UCF101_LINE.fullmatch(line)
        if match is None:
            yield Bad("line in another form than Class/v_Class_g01_c01.avi", line)
            return
        path = inside.path(f"{match['folder']}/{match['name']}")
        label = classes.get(match["folder"])
        if path is None:
            yield Bad("path outside DATA.PATH_PREFIX", line)
        elif label is None:
            yield Bad("folder of no class", match["folder"])
        elif match["number"] and int(match["number"]) != label + 1:
            yield Bad("number of another class", line)
        else:
            yield Listed(VideoRecord(path, label))

    return _read(list_path, root, _lines, parse)


HMDB51_FILE = re.compile(r"(?P<class>.+)_test_split(?P<number>[0-9]+)\.txt")
HMDB51_LINE = re.compile(r"(?P<name>.+\S)\s+(?P<use>[012])")
HMDB51_USE: dict[Split, str] = {"train": "1", "val": "2"}
"""The number in a line that marks a video of a list; 0 marks a video of neither list."""


def read_hmdb51(pattern: Path, root: Path, num_classes: int, split: Split) -> VideoList:
    """Read the split files that ``pattern`` matches, such as FOLDER/*_test_split1.txt: one file for each class.

    A line names a video of the file's class, and 1 for training, 2 for test ("val" here) or 0 for neither.
    Classes are numbered in the order of their names. The file is ``root/CLASS/NAME``. The same video must not
    come twice, and the files must be of one split.
    """
    problems = [*root_problems(root)]
    videos: list[Listed] = []
    bad: BadPlaces = []
    uses: dict[str, str] = {}
    with collected(problems):
        files = hmdb51_files(pattern)
        labels = number_classes(files, str(pattern), num_classes)
        for name, path in files.items():
            parse = partial(_hmdb51_line, Root(root), name, labels[name], uses)
            in_file, bad_lines = parse_entries(_lines(read_text(path), path), parse)
            # Videos for the other use are parsed too, so that one message names the faults of all lines.
            videos += (entry for entry in in_file if uses[entry.record.path] == HMDB51_USE[split])
            bad += bad_lines
    if_empty = f"list files {pattern}: no video is marked {HMDB51_USE[split]}"
    return existing_videos(videos, [*problems, *bad_messages(bad)], if_empty)


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


def _hmdb51_line(
    inside: Root, class_name: str, label: int, uses: dict[str, str], line: str
) -> Iterator[Listed | Bad]:
    """Parse a line of a split file, and store in ``uses`` the number that says what its video is for."""
    match = HMDB51_LINE.fullmatch(line)
    path = inside.path(f"{class_name}/{match['name']}") if match else None
    if match is None:
        yield Bad("line without 0, 1 or 2 behind the name", line)
    elif path is None:
        yield Bad("path outside DATA.PATH_PREFIX", line)
    else:
        uses.setdefault(path, match["use"])
        yield Listed(VideoRecord(path, label))


def read_folders(folder: Path, classes: Mapping[str, int]) -> VideoList:
    """Read the videos ``folder/CLASS/NAME`` in the order of their paths. An empty file counts as missing.

    A folder of images is a video too.

    ``classes``: name of a folder → number. Hidden files (.DS_Store) are skipped. It is a problem if
    any other file lacks the ending of a video (in small or capital letters), or if a folder has no
    class or no video.
    """
    try:
        class_folders(folder)
        videos, bad = _videos_of_classes(folder, classes)
    except InputError as error:
        return VideoList(problems=error.problems)
    except OSError as error:
        return VideoList(problems=(unreadable(error),))
    return existing_videos(videos, bad_messages(bad), f"folder {folder} holds no video")


def unreadable(error: OSError) -> str:
    return f"{error.filename} cannot be read: {error.strerror}"


def _videos_of_classes(folder: Path, classes: Mapping[str, int]) -> tuple[list[Listed], BadPlaces]:
    videos: list[Listed] = []
    bad: BadPlaces = []
    # Paths are absolute and without "..", as in all formats, because clip stores and quarantines
    # compare them as text.
    for path in visible_in(Path(os.path.normpath(folder.absolute()))):
        if not path.is_dir():
            bad.append((str(folder), Bad("file outside the folders of the classes", path.name)))
        elif path.name not in classes:
            bad.append((str(folder), Bad("folder of no class", path.name)))
        else:
            num_before = len(videos)
            for file in visible_in(path):
                if file.is_dir():
                    what = "folder in the folder of a class"
                    is_video = any(is_image(image.name) for image in file.iterdir())
                else:
                    what = "file without the ending of a video"
                    is_video = file.suffix.lower() in ENDINGS
                if is_video:
                    videos.append(Listed(VideoRecord(str(file), classes[path.name])))
                else:
                    bad.append((str(path), Bad(what, file.name)))
            if len(videos) == num_before:
                bad.append((str(folder), Bad("folder without a video", path.name)))
    return videos, bad


def class_folders(folder: Path) -> tuple[str, ...]:
    """Return the names of the folders in ``folder`` that are not hidden. Raises InputError."""
    if not (is_folder(folder) and os.access(folder, os.R_OK | os.X_OK)):
        what = "is not a folder that can be read" if is_there(folder) else "does not exist"
        raise InputError([f"folder of videos {folder.absolute()} {what}"])
    return tuple(path.name for path in visible_in(folder) if path.is_dir())


def visible_in(folder: Path) -> list[Path]:
    """List what a folder holds in the order of the names, without hidden files such as .DS_Store."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
