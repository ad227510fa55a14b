"""Read values of configuration keys from YAML files and from text, and convert them to the types of the keys."""

from __future__ import annotations

import ast
import math
import os
import warnings
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

import yaml

from mgexp.run.files import is_file, is_there
from mgexp.text import is_plain, shown

PathText: TypeAlias = Annotated[str, "path"]
"""Text that stays as it was typed: YAML reads the folder 2024_01 as the number 202401."""
IntOrAuto: TypeAlias = int | Literal["auto"]

MAX_INT = 2**53
"""Whole numbers up to here are exact as floating-point numbers, which epochs and costs are."""
MAX_ITEMS = 1000
"""Most items of a list. Assumption: no schedule has as many stages."""
MAX_LITERAL_CHARS = 10_000
"""Most characters of a value that is not text."""
MAX_YAML_BYTES = 2**17
"""Most bytes of a file or value. The whole configuration of a run takes 6,000."""
MAX_FILES = 50
"""Most files that one configuration is read from: ``_BASE_`` may name several, and each of those again."""
BASE_KEY = "_BASE_"


def is_text(kind: Any) -> bool:  # noqa: ANN401 - an annotation
    """Tell whether values of this type are text, which is never read as a number or as YAML."""
    return kind in {str, PathText} or isinstance((get_args(kind) or [None])[0], str)


def convert(kind: Any, value: object) -> Any:  # noqa: ANN401 - an annotation, and a value of it
    """Return ``value`` as the type ``kind``, immutable. Nothing is rounded or adjusted.

    For a Literal the value gets the type of the choices; it need not be one of them.
    Raises ValueError that says what is wrong with the value.
    """
    if kind == IntOrAuto:
        return "auto" if value == "auto" else _int(value, "is neither a whole number nor auto")
    if get_origin(kind) is Annotated:
        return _str(value)
    if get_origin(kind) is Literal:
        return convert(type(get_args(kind)[0]), value)
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError("is not a list")
        if len(value) > MAX_ITEMS:
            raise ValueError(f"is a list of more than {MAX_ITEMS} values")
        kinds = get_args(kind)
        if kinds[-1] is Ellipsis:  # tuple[float, ...] has as many values as are given
            kinds = kinds[:1] * len(value)
        if len(value) != len(kinds):
            raise ValueError(f"has {shown(list(value))} where {len(kinds)} values belong")
        return tuple(convert(one, item) for one, item in zip(kinds, value, strict=True))
    if kind is bool:
        # Not bool(value): the text "False" and the number 2 would both be True.
        if not isinstance(value, bool):
            raise ValueError("is not True or False")
        return value
    plain: dict[Any, Callable[[object], Any]] = {int: _int, float: _float, str: _str}
    return plain[kind](value)


def as_lists(value: object) -> object:
    """Return the value with lists in place of tuples, as YAML and JSON have it."""
    if isinstance(value, Mapping):
        return {name: as_lists(item) for name, item in value.items()}
    return [as_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _int(value: object, problem: str = "is not a whole number") -> int:
    value = from_text(value) if isinstance(value, str) else value
    if isinstance(value, bool) or not isinstance(value, int):  # True is an int in Python
        raise ValueError(problem)
    if abs(value) > MAX_INT:
        raise ValueError("is further from 0 than 2^53")
    return value


def _float(value: object) -> float:
    # YAML 1.1 reads 1e-4 as text, and PySlowFast's files are full of such numbers.
    value = from_text(value) if isinstance(value, str) else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("is not a number")
    try:
        number = float(value)
    except OverflowError:  # a whole number of more than 308 digits
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("is not finite")
    return number


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is not text; put it in quotes")
    if not is_plain(value.replace("\t", " ")):  # a tab may separate path and label
        raise ValueError("holds control characters, or bytes that are no UTF-8")
    return value


def from_text(text: str) -> object:
    """Read the value of a KEY VALUE pair: a Python literal as in PySlowFast, else YAML, else the text itself."""
    if len(text) > MAX_LITERAL_CHARS:
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns about texts such as 'C:\\data'
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass  # the errors that the documentation of literal_eval lists
    try:
        return parse_yaml(text)
    except ValueError:
        return text


class PlainLoader(yaml.SafeLoader):
    """YAML's safe loader, but stricter: it refuses aliases, and a key that is there twice.

    With aliases a few lines can stand for gigabytes.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse ``*name``."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]  # a gap of the stubs
            problem = f"aliases such as *{event.anchor} are not read; write the value out"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuse a key that is there twice: YAML would silently keep the last value only."""
        seen: set[str] = set()
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode) and name.value in seen:
                problem = f"the key {name.value} is there twice"
                raise yaml.constructor.ConstructorError(None, None, problem, name.start_mark)
            seen.add(str(name.value))
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> object:
    """Parse plain YAML. Raises ValueError with a message in one line."""
    _check_size(len(text))
    try:
        return yaml.load(text, Loader=PlainLoader)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except Exception as error:  # damaged dates, numbers and tags raise KeyError, AttributeError, …
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def _check_size(num: int) -> None:
    if num > MAX_YAML_BYTES:
        raise ValueError(f"is larger than {MAX_YAML_BYTES:,} bytes, the most that is read")


def read_yaml(path: Path, opened: list[Path] | None = None) -> dict[str, Any]:
    """Read a YAML file over the files that its ``_BASE_`` names: relative to it, absolute, or with ~.

    ``opened`` collects the files, as a _BASE_ may lead back to the file itself. Each must be a regular file on
    this machine. Raises OSError with the file's name where one cannot be read, ValueError where one is not plain
    YAML, and RecursionError where there are more than MAX_FILES.
    """
    is_base = opened is not None
    opened = [] if opened is None else opened
    opened.append(path)
    if len(opened) > MAX_FILES:
        raise RecursionError
    if not is_file(path):
        raise OSError(0, "Not a regular file" if is_there(path) else "No such file", str(path))
    with path.open("rb") as file:
        data = file.read(MAX_YAML_BYTES + 1)
    try:
        _check_size(len(data))
        tree = parse_yaml(data.decode("utf-8-sig"))  # editors on Windows begin a file with a mark
        if not isinstance(tree, dict):
            raise ValueError(f"it holds {shown(tree)}")
        bases = tree.pop(BASE_KEY, [])
        bases = bases if isinstance(bases, list) else [bases]
        if not all(isinstance(base, str) for base in bases):
            raise ValueError(f"{BASE_KEY} = {shown(bases)} is not the path of a file")
    except ValueError as error:
        raise ValueError(f"{path}: {error}" if is_base else str(error)) from error
    merged: dict[str, Any] = {}
    for base in bases:
        # Unlike Path.expanduser this raises nothing for an unknown user.
        named = os.path.expanduser(base)  # noqa: PTH111
        _merge(read_yaml(path.parent / named, opened), merged)
    _merge(tree, merged)
    return merged


def _merge(top: Mapping[str, Any], into: dict[str, Any]) -> None:
    """Put the values of ``top`` over those that are there, section by section."""
    for name, value in top.items():
        if isinstance(value, dict) and name in into:
            if not isinstance(into[name], dict):
                raise ValueError(f"{name} is a section, and a value in a file of {BASE_KEY}")
            _merge(value, into[name])
        else:
            into[name] = value
