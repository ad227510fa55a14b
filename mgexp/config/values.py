"""The kinds of value that a configuration key can take, and how text becomes one."""

from __future__ import annotations

import ast
import io
import math
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from fvcore.common.config import BASE_KEY, CfgNode

from mgexp.run.files import is_file, is_there
from mgexp.text import is_plain, shown

MAX_YAML_BYTES = 2**17
"""Of a file, and of a value. The whole configuration of a run takes 6,000."""
MAX_FILES = 50
"""That one configuration is read from; ``_BASE_`` may name several, and each of those again."""


class PlainLoader(yaml.SafeLoader):
    """Safe, and stricter: no aliases, with which a few lines can stand for gigabytes, and no key twice."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuses ``*name``."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]  # a gap of the stubs
            problem = f"aliases such as *{event.anchor} are not read; write the value out"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuses a key that is there twice: only the last of its values would count."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f"the key {key.value} is there twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> object:
    """The value that ``text`` is. Raises ValueError, in one line, for what is no plain YAML."""
    _check_size(len(text))
    try:
        return yaml.load(text, Loader=PlainLoader)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except Exception as error:  # damaged dates, numbers and tags are KeyError, AttributeError, …
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def read_with_bases(path: Path) -> object:
    """What is in a YAML file over the files that its ``_BASE_`` names: relative to it, absolute, or ~.

    Each must be a regular file on this machine. Raises OSError, which has the file's name, where one cannot be
    read; ValueError where one is no plain YAML; RecursionError where there are more than MAX_FILES.
    """
    opened: list[str] = []

    class Files(CfgNode):  # type: ignore[misc]  # fvcore has no types
        @classmethod
        def _open_cfg(cls, filename: str) -> io.StringIO:
            opened.append(filename)
            if len(opened) > MAX_FILES:
                raise RecursionError
            return io.StringIO(_checked_text(Path(filename), is_base=len(opened) > 1))

    try:
        return Files.load_yaml_with_base(str(path), allow_unsafe=False)
    except (
        TypeError,
        AssertionError,
    ) as error:  # no mapping, or a value where its base has a mapping
        raise ValueError(" ".join(str(error).split())) from error


def _checked_text(path: Path, is_base: bool) -> str:
    """The text of a file, once it is known to be plain YAML."""
    if not is_file(path):
        reason = "Not a regular file" if is_there(path) else "No such file"
        raise OSError(0, reason, str(path))
    with path.open("rb") as file:
        data = file.read(MAX_YAML_BYTES + 1)
    try:
        _check_size(len(data))
        text = data.decode("utf-8-sig")
        _check_bases(parse_yaml(text))
    except ValueError as error:
        raise ValueError(f"{path}: {error}" if is_base else str(error)) from error
    return text


def _check_bases(value: object) -> None:
    if isinstance(value, dict) and BASE_KEY in value:
        bases = value[BASE_KEY]
        if not all(
            isinstance(base, str) for base in (bases if isinstance(bases, list) else [bases])
        ):
            raise ValueError(f"{BASE_KEY} = {shown(bases)} is not the path of a file")


def _check_size(num: int) -> None:
    if num > MAX_YAML_BYTES:
        raise ValueError(f"is larger than {MAX_YAML_BYTES:,} bytes, the most that is read")


MAX_INT = 2**53
"""Whole numbers up to here are exact as floating-point numbers, which epochs and costs are."""
MAX_ITEMS = 1000
"""Of a list. Assumption: no schedule has as many stages."""
MAX_LITERAL_CHARS = 10_000
"""Of a value that is not text."""


@dataclass(frozen=True)
class Kind:
    """``convert`` returns the value, immutable, or raises ValueError; nothing is rounded or adjusted."""

    name: str
    convert: Callable[[object], object]


def from_text(text: str) -> object:
    """The value of a KEY VALUE pair: a Python literal as in PySlowFast, else YAML, else the text itself."""
    if len(text) > MAX_LITERAL_CHARS:
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what Python thinks of a text such as 'C:\\data'
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass  # as the documentation of literal_eval lists them
    try:
        return parse_yaml(text)
    except ValueError:
        return text


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is not True or False")
    return value


def _int(value: object) -> int:
    value = _number_in_text(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("is not a whole number")
    if abs(value) > MAX_INT:
        raise ValueError("is further from 0 than 2^53")
    return value


def _int_or_auto(value: object) -> int | str:
    if value == "auto":
        return "auto"
    try:
        return _int(value)
    except ValueError as error:
        raise ValueError("is neither a whole number nor auto") from error


def _float(value: object) -> float:
    value = _number_in_text(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("is not finite")
    return number


def _number_in_text(value: object) -> object:
    """YAML 1.1 reads ``1e-4`` as text; PySlowFast's files are full of it."""
    return from_text(value) if isinstance(value, str) else value


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is not text")
    if not is_plain(value.replace("\t", " ")):  # a tab may separate path and label
        raise ValueError("holds control characters, or bytes that are no UTF-8")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list | tuple):
        raise ValueError("is not a list")
    if len(value) > MAX_ITEMS:
        raise ValueError(f"is a list of more than {MAX_ITEMS} values")
    return list(value)


def _ints(value: object) -> tuple[int, ...]:
    return tuple(_int(item) for item in _list(value))


def _floats(value: object) -> tuple[float, ...]:
    return tuple(_float(item) for item in _list(value))


def _pairs(value: object) -> tuple[tuple[float, ...], ...]:
    pairs = tuple(_floats(item) for item in _list(value))
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("is not a list of pairs")
    return pairs


def _int_lists(value: object) -> tuple[tuple[int, ...], ...]:
    return tuple(_ints(item) for item in _list(value))


def _expectations(value: object) -> tuple[tuple[str, float, float], ...]:
    rows = [_list(row) for row in _list(value)]
    if any(len(row) != 3 for row in rows):
        raise ValueError("is not a list of [metric, percent, tolerance]")
    return tuple((_str(metric), _float(want), _float(within)) for metric, want, within in rows)


BOOL = Kind("True or False", _bool)
INT = Kind("whole number", _int)
INT_OR_AUTO = Kind("whole number or auto", _int_or_auto)
FLOAT = Kind("number", _float)
STR = Kind("text", _str)
PATH = Kind("path, as text", _str)  # as a number, 2024_01 would become 202401
INTS = Kind("list of whole numbers", _ints)
FLOATS = Kind("list of numbers", _floats)
PAIRS = Kind("list of pairs of numbers", _pairs)
INT_LISTS = Kind("list of lists of whole numbers", _int_lists)
EXPECTATIONS = Kind("list of [metric, percent, tolerance]", _expectations)
