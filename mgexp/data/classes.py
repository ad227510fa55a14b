"""The names of the classes of a data set and their numbers, from 0."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgexp.data.files import read_text
from mgexp.errors import listed
from mgexp.text import shown


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
