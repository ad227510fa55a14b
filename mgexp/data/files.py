"""The names of the classes of a data set and their numbers, from 0."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgexp.errors import listed
from mgexp.run.files import is_file, is_folder, is_there
from mgexp.text import shown

MAX_LISTED = 10
"""Problems of one kind that are listed; of the others only the number."""


class ProblemLog:
    """Problems by kind, each at a place; a kind lists its first ones and the number of the others.

    ``remedies``: what to do about each kind, in the order in which they are told.
    """

    def __init__(self, remedies: Mapping[str, str]) -> None:
        self.remedies = remedies
        self.places: dict[str, list[str]] = {kind: [] for kind in remedies}

    def add(self, kind: str, place: str, value: object) -> None:
        """Notes a problem of a known kind."""
        self.places[kind].append(f"{place}: {value!r}")

    def messages(self) -> Iterator[str]:
        """One message each: what, where, the value, what to do."""
        for kind, places in self.places.items():
            for place in places[:MAX_LISTED]:
                yield f"{kind}, {place}: {self.remedies[kind]}"
            if len(places) > MAX_LISTED:
                yield f"{kind}: ... and {len(places) - MAX_LISTED} more"


NO_COLUMN = "column that is not there"
DAMAGED_TABLE = "table that cannot be read"


def read_text(path: Path, what: str = "list file") -> tuple[str, list[str]]:
    """The text of a UTF-8 file, with or without a byte order mark, and what is wrong with the file."""
    if not is_file(path):
        problem = "is not a file" if is_there(path) else "does not exist"
        return "", [f"{what} {path.absolute()} {problem}: give the path of a text file"]
    try:
        return path.read_bytes().decode("utf-8-sig"), []
    except (OSError, UnicodeDecodeError) as error:
        remedy = "make it a readable UTF-8 text file"
        return "", [f"{what} {path} cannot be read ({error}): {remedy}"]


def read_list_text(list_path: Path, root: Path) -> tuple[str, list[str]]:
    """The text of a list, and what is wrong with the list file and with the root folder of its videos."""
    text, problems = read_text(list_path)
    return text, [*problems, *root_problems(root)]


def root_problems(root: Path) -> Iterator[str]:
    """A root folder that is none."""
    if not is_folder(root):
        what = "is not a folder" if is_there(root) else "does not exist"
        remedy = "set DATA.PATH_PREFIX to the folder that the paths of the lists are relative to"
        yield f"root folder of the videos {root.absolute()} {what}: {remedy}"


def csv_rows(
    text: str, list_path: Path, columns: Sequence[str], log: ProblemLog
) -> Iterator[tuple[str, dict[str, str]]]:
    """(place, row) of each line that is not blank; cells without spaces around them, "" where a row is short.

    The first line names the columns, in any order, more of them than ``columns`` or not. ``log`` takes
    NO_COLUMN for each of ``columns`` that is missing (there are no rows then), and DAMAGED_TABLE.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
    try:
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        missing = [name for name in columns if name not in reader.fieldnames]
        for name in missing:
            log.add(NO_COLUMN, f"{list_path}:1", name)
        for row in () if missing else reader:
            cells = {name: row[name].strip() for name in reader.fieldnames}
            if any(cells.values()):
                yield f"{list_path}:{reader.line_num}", cells
    except csv.Error as error:
        log.add(DAMAGED_TABLE, f"{list_path}:{reader.line_num}", str(error))


@dataclass(frozen=True)
class Classes:
    """``numbers``: name → number, from 0 without gaps. ``problems``: what is wrong, one message each."""

    numbers: Mapping[str, int]
    problems: tuple[str, ...]


def read_classes(path: Path, num_classes: int) -> Classes:
    """The classes of a file: JSON or text, UTF-8, with or without byte order mark and Windows line ends.

    JSON: an object ``{"name": number}``, the number as such or as text; that is labels.json of
    Something-Something and kinetics_classnames.json of PySlowFast, whose quotes in names are dropped.
    Text: a name per line, numbered from 0; or, where every line starts with a number, ``number name`` as in
    classInd.txt of UCF-101, the least number being class 0. Blank lines are skipped.
    There must be ``num_classes`` names, all different, with numbers that have no gap.
    """
    text, problems = read_text(path, "class list")
    if problems:
        return Classes({}, tuple(problems))
    entries, problems = _json(text, path) if path.suffix == ".json" else (_lines(text), [])
    if problems:
        return Classes({}, tuple(problems))
    found = list(_problems(entries, str(path), num_classes))
    first = min((number for _, number in entries), default=0)
    return Classes({name: number - first for name, number in entries}, tuple(found))


def number_classes(names: Sequence[str], source: str, num_classes: int) -> Classes:
    """Classes numbered by name, in the order of their characters; ``source`` says where the names are from.

    There must be ``num_classes`` of them: a list that lacks a class would number all after it wrongly.
    """
    entries = [(name, number) for number, name in enumerate(sorted(names))]
    return Classes(dict(entries), tuple(_problems(entries, source, num_classes)))


def _json(text: str, path: Path) -> tuple[list[tuple[str, int]], list[str]]:
    remedy = 'write {"name": number, ...}, as labels.json of Something-Something'
    try:
        pairs = json.loads(
            text, object_pairs_hook=list
        )  # pairs: an object would forget repeated names
    except (ValueError, RecursionError) as error:
        return [], [f"class list {path} is not JSON ({error}): {remedy}"]
    try:
        return [(name.strip('"'), int(number)) for name, number in pairs], []
    except (TypeError, ValueError, AttributeError, OverflowError):  # the last: of infinity
        return [], [f"class list {path} is no object of names and whole numbers: {remedy}"]


def _lines(text: str) -> list[tuple[str, int]]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    numbered = [re.fullmatch(r"([0-9]{1,9})\s+(.+)", line) for line in lines]
    if all(numbered):
        return [(match[2], int(match[1])) for match in numbered if match]
    return [(name, number) for number, name in enumerate(lines)]


def _problems(entries: Sequence[tuple[str, int]], source: str, num_classes: int) -> Iterator[str]:
    names, numbers = [name for name, _ in entries], sorted(number for _, number in entries)
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        yield f"classes of {source}: {listed(repeated)}: named twice; keep one of each"
    elif numbers != [numbers[0] + position for position in range(len(numbers))]:
        yield f"classes of {source}: numbers {shown(numbers)} have a gap or repeat; number them in turn"
    if len(names) != num_classes:
        yield (
            f"classes of {source}: {len(names)} names, but MODEL.NUM_CLASSES = {num_classes}: correct that "
            "key, or set DATA.CLASSES to a file with the names of all classes"
        )
