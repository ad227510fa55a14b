"""The classes of a data set: their names and their numbers, from 0."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from mgexp.errors import InputError, listed, raise_problems
from mgexp.run.files import is_file, is_there, understanding
from mgexp.text import counted, shown

NUMBERED = re.compile(r"([0-9]{1,9})\s+(.+)")
"""A line "number name". With more than nine digits, Python may refuse or take long to convert the number."""


def class_list(names: Sequence[str]) -> str:
    """Write the text from which ``read_classes`` reads these names, in this order."""
    # If all names were such lines themselves, their beginnings would be read as numbers of classes.
    if all(map(NUMBERED.fullmatch, names)):
        names = [f"{number} {name}" for number, name in enumerate(names)]
    return "".join(f"{name}\n" for name in names)


def read_text(path: Path, what: str = "list file") -> str:
    """Read a UTF-8 file, with or without a byte order mark. Raises InputError."""
    if not is_file(path):
        problem = "is not a file" if is_there(path) else "does not exist"
        raise InputError([f"{what} {path.absolute()} {problem}"])
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError([f"{what} {path} cannot be read: {error}"]) from error


def read_class_names(path: Path) -> tuple[str, ...]:
    """Read the names of the classes 0, 1, … from a file of the forms of ``read_classes``. Raises InputError.

    The number of classes is unknown here, so an empty line before a name is an error: it may be a lost name.
    """
    return tuple(read_classes(path, None))


def read_classes(path: Path, num_classes: int | None) -> dict[str, int]:
    """Read the classes from a JSON or text file in UTF-8. Byte order mark and Windows line ends are fine.

    JSON: an object ``{"name": number}``, where the number may be text. Something-Something's labels.json and
    PySlowFast's kinetics_classnames.json are such files; quotes around the names of the latter are removed.
    Text: a name per line, numbered from 0. If every line starts with a number, as in classInd.txt of UCF-101,
    it is ``number name``, and the least number is class 0. Blank lines are skipped.
    There must be ``num_classes`` different names (None: at least one), and their numbers must have no gap.
    Returns name → number, in the order of the numbers. Raises InputError.
    """
    text = read_text(path, "class list")
    if path.suffix.lower() == ".json":
        with understanding(path, "a class list, an object of names and whole numbers"):
            # A dict would forget a name that comes twice.
            pairs = json.loads(text, object_pairs_hook=tuple)
            if not isinstance(pairs, tuple):
                raise TypeError(f"a {type(pairs).__name__}")
            # int() alone would round 1.9.
            if other := [name for name, number in pairs if not str(number).isdecimal()]:
                raise ValueError(f"{listed(other, 3)} without a whole number")
            entries = [(name.strip('"'), int(number)) for name, number in pairs]
        return _numbered(entries, str(path), num_classes)
    whole = [line.strip() for line in text.strip().splitlines()]
    if num_classes is None and "" in whole:
        place = f"a line before {shown(whole[whole.index('') + 1])} is empty"
        raise InputError([f"class list {path}: {place}"])
    lines = [line for line in whole if line]
    matches = [NUMBERED.fullmatch(line) for line in lines]
    # If one line has no number, all lines are names: a class may be called "100 metres".
    entries = [(match[2], int(match[1])) for match in matches if match]
    if len(entries) < len(lines):
        entries = [(name, number) for number, name in enumerate(lines)]
    return _numbered(entries, str(path), num_classes)


def number_classes(names: Iterable[str], source: str, num_classes: int) -> dict[str, int]:
    """Number the classes in the order that is given. Messages name ``source``, where the names come from.

    There must be ``num_classes`` names: if one were missing, all classes after it would get wrong numbers.
    """
    entries = [(name, number) for number, name in enumerate(names)]
    return _numbered(entries, source, num_classes)


def _numbered(
    entries: Sequence[tuple[str, int]], source: str, num_classes: int | None
) -> dict[str, int]:
    names, numbers = [name for name, _ in entries], sorted(number for _, number in entries)
    problems = []
    repeated = [name for name, times in Counter(names).items() if times > 1]
    first = numbers[0] if numbers else 0
    if repeated:
        problems.append(f"classes of {source}: {listed(repeated)}: named twice")
    elif numbers != [first + position for position in range(len(numbers))]:
        problems.append(f"classes of {source}: numbers {shown(numbers)} have a gap or repeat")
    is_complete = len(names) == num_classes if num_classes else bool(names)
    if not is_complete:
        wanted = f", but MODEL.NUM_CLASSES = {num_classes}" if num_classes else ""
        problems.append(f"classes of {source}: {counted(len(names), 'name')}{wanted}")
    raise_problems(problems)
    return {name: number - first for name, number in sorted(entries, key=lambda entry: entry[1])}
