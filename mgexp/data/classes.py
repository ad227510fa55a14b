"""The classes of a data set: their names and their numbers, from 0."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgexp.errors import listed, raise_problems
from mgexp.run.files import is_file, is_there
from mgexp.text import counted, shown


@dataclass(frozen=True)
class Classes:
    """The classes. ``numbers``: name → number, from 0 without gaps. ``problems``: a message for each fault."""

    numbers: Mapping[str, int]
    problems: tuple[str, ...] = ()


NUMBERED = re.compile(r"([0-9]{1,9})\s+(.+)")
"""A line "number name". With more than nine digits, Python may refuse or take long to convert the number."""


def class_list(names: Sequence[str]) -> str:
    """Write the text from which ``read_classes`` reads these names, in this order."""
    # If all names were such lines themselves, their beginnings would be read as numbers of classes.
    if all(map(NUMBERED.fullmatch, names)):
        names = [f"{number} {name}" for number, name in enumerate(names)]
    return "".join(f"{name}\n" for name in names)


def read_text(path: Path, what: str = "list file") -> tuple[str, list[str]]:
    """Read a UTF-8 file, with or without a byte order mark; return its text and what is wrong with the file."""
    if not is_file(path):
        problem = "is not a file" if is_there(path) else "does not exist"
        return "", [f"{what} {path.absolute()} {problem}"]
    try:
        return path.read_bytes().decode("utf-8-sig"), []
    except (OSError, UnicodeDecodeError) as error:
        return "", [f"{what} {path} cannot be read: {error}"]


def read_class_names(path: Path) -> tuple[str, ...]:
    """Read the names of the classes 0, 1, … from a file of the forms of ``read_classes``. Raises InputError.

    The number of classes is unknown here, so an empty line before a name is an error: it may be a lost name.
    """
    classes = read_classes(path, None)
    raise_problems(classes.problems)
    return tuple(sorted(classes.numbers, key=classes.numbers.__getitem__))


def read_classes(path: Path, num_classes: int | None) -> Classes:
    """Read the classes from a JSON or text file in UTF-8. Byte order mark and Windows line ends are fine.

    JSON: an object ``{"name": number}``, where the number may be text. Something-Something's labels.json and
    PySlowFast's kinetics_classnames.json are such files; quotes around the names of the latter are removed.
    Text: a name per line, numbered from 0. If every line starts with a number, as in classInd.txt of UCF-101,
    it is ``number name``, and the least number is class 0. Blank lines are skipped.
    There must be ``num_classes`` different names (None: at least one), and their numbers must have no gap.
    """
    text, problems = read_text(path, "class list")
    if not problems and path.suffix.lower() == ".json":
        entries, problems = _json_entries(text, path)
    else:
        whole = [line.strip() for line in text.strip().splitlines()]
        if num_classes is None and "" in whole:
            place = f"a line before {shown(whole[whole.index('') + 1])} is empty"
            problems = [f"class list {path}: {place}"]
        lines = [line for line in whole if line]
        matches = [NUMBERED.fullmatch(line) for line in lines]
        # If one line has no number, all lines are names: a class may be called "100 metres".
        entries = [(match[2], int(match[1])) for match in matches if match]
        if len(entries) < len(lines):
            entries = [(name, number) for number, name in enumerate(lines)]
    if problems:
        return Classes({}, tuple(problems))
    first = min((number for _, number in entries), default=0)
    numbers = {name: number - first for name, number in entries}
    return Classes(numbers, tuple(_problems(entries, str(path), num_classes)))


def number_classes(names: Sequence[str], source: str, num_classes: int) -> Classes:
    """Number the classes in the order of their names. Messages name ``source``, where the names come from.

    There must be ``num_classes`` names: if one were missing, all classes after it would get wrong numbers.
    """
    entries = [(name, number) for number, name in enumerate(sorted(names))]
    return Classes(dict(entries), tuple(_problems(entries, source, num_classes)))


def _json_entries(text: str, path: Path) -> tuple[list[tuple[str, int]], list[str]]:
    try:
        # Objects are read as lists of pairs, because a dict would forget a name that comes twice.
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        return [], [f"class list {path} is not JSON: {error}"]
    try:
        if not all(isinstance(pair, tuple) for pair in pairs):
            raise ValueError
        return [(name.strip('"'), _whole(number)) for name, number in pairs], []
    except (TypeError, ValueError, AttributeError):
        return [], [f"class list {path} is no object of names and whole numbers"]


def _whole(value: object) -> int:
    """Read a whole number, which Something-Something writes as text. int() alone would round 1.9."""
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        return int(value)
    raise ValueError


def _problems(
    entries: Sequence[tuple[str, int]], source: str, num_classes: int | None
) -> Iterator[str]:
    names, numbers = [name for name, _ in entries], sorted(number for _, number in entries)
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        yield f"classes of {source}: {listed(repeated)}: named twice"
    elif numbers != [numbers[0] + position for position in range(len(numbers))]:
        yield f"classes of {source}: numbers {shown(numbers)} have a gap or repeat"
    if num_classes is None and not names:
        yield f"class list {source} is empty"
    elif num_classes is not None and len(names) != num_classes:
        yield f"classes of {source}: {counted(len(names), 'name')}, but MODEL.NUM_CLASSES = {num_classes}"
