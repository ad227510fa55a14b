"""The kinds of value that a configuration key can take, and how text becomes one."""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from mgexp.config.yaml_text import parse_yaml
from mgexp.text import is_plain

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
