"""Read values of configuration keys from YAML and text, convert them to the types of the keys, and check them."""

from __future__ import annotations

import ast
import math
import os
import warnings
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, get_origin

import yaml

from mgexp.run.files import is_file, is_there
from mgexp.text import is_plain, shown

IntOrAuto: TypeAlias = int | Literal["auto"]

MAX_INT = 2**53
"""The largest whole number. Floating-point numbers hold whole numbers exactly up to here."""
MAX_BASES = 50
"""The longest chain of files in which each is a ``_BASE_`` of the one before."""
BASE_KEY = "_BASE_"
EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
"""The rows of the repository."""
BASES = EXPERIMENTS / "base"
"""The bases of the repository, which a ``_BASE_`` may name from anywhere."""


def is_text(kind: Any) -> bool:
    """Return whether values of this type are text, which is never read as a number or as YAML."""
    return kind is str or isinstance((get_args(kind) or [None])[0], str)


def convert(kind: Any, value: object) -> Any:
    """Return ``value`` as a value of the type ``kind``. Do not round or adjust it.

    The result is immutable, unless it is a mapping. For a Literal, it has the type of the choices, but it may be
    another value than these.
    Raises a ValueError that says what is wrong with the value.
    """
    if kind == IntOrAuto:
        return "auto" if value == "auto" else _int(value, "is neither a whole number nor auto")
    if get_origin(kind) is Literal:
        return convert(type(get_args(kind)[0]), value)
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError("is not a list")
        kinds = get_args(kind)
        # A tuple[float, ...] may have any number of values.
        if kinds[-1] is Ellipsis:
            kinds = kinds[:1] * len(value)
        if len(value) != len(kinds):
            raise ValueError(f"has {shown(list(value))} where {len(kinds)} values belong")
        return tuple(convert(item_kind, item) for item_kind, item in zip(kinds, value, strict=True))
    if get_origin(kind) is Mapping:
        if not isinstance(value, Mapping):
            raise ValueError("is not a mapping from names to values")
        kinds = get_args(kind)
        return {convert(kinds[0], name): convert(kinds[1], item) for name, item in value.items()}
    if kind is bool:
        # Not bool(value): the text "False" and the number 2 would both be True.
        if not isinstance(value, bool):
            raise ValueError("is not True or False")
        return value
    plain: dict[Any, Callable[[object], Any]] = {int: _int, float: _float, str: _str}
    if kind not in plain:
        raise ValueError(f"has the type {kind}, which no key has")
    return plain[kind](value)


def as_lists(value: object) -> object:
    """Return the value with lists in place of tuples, as YAML and JSON have them."""
    if isinstance(value, Mapping):
        return {name: as_lists(item) for name, item in value.items()}
    return [as_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _int(value: object, problem: str = "is not a whole number") -> int:
    value = from_text(value) if isinstance(value, str) else value
    # In Python, True is an int.
    if isinstance(value, bool) or not isinstance(value, int):
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
    # Whole numbers of more than 308 digits are larger than every float.
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("is not finite")
    return number


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is not text; put it in quotes")
    # A tab is a control character, but it may be the separator between path and label.
    if not is_plain(value.replace("\t", " ")):
        raise ValueError("holds control characters, or bytes that are no UTF-8")
    return value


def from_text(text: str) -> object:
    """Read the value of a KEY VALUE pair: a Python literal as in PySlowFast, else YAML, else the text itself."""
    # Python warns about texts such as 'C:\\data'. The documentation of literal_eval lists the errors below.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    try:
        return parse_yaml(text)
    except ValueError:
        return text


class PlainLoader(yaml.SafeLoader):
    """YAML's safe loader, which also refuses a key with two values."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuse a key with two values. PyYAML would silently keep only the last one."""
        seen: dict[str, yaml.Node] = {}
        for name, value in node.value:
            before = seen.setdefault(str(name.value), value)
            # A released file of PySlowFast repeats a key with the same value, which changes nothing.
            is_same = isinstance(value, yaml.ScalarNode) and value.value == before.value
            if isinstance(name, yaml.ScalarNode) and before is not value and not is_same:
                problem = f"the key {name.value} appears twice"
                raise yaml.constructor.ConstructorError(None, None, problem, name.start_mark)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> object:
    """Parse plain YAML. Raises a ValueError whose message has one line."""
    try:
        return yaml.load(text, Loader=PlainLoader)  # noqa: S506 - derives from SafeLoader
    # PyYAML raises KeyError, AttributeError and others for damaged dates, numbers and tags.
    except Exception as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a file alone, without those of its ``_BASE_``. Raises ValueError if it is no mapping in plain YAML."""
    # Editors on Windows may begin a file with a mark, which "utf-8-sig" removes.
    tree = parse_yaml(path.read_text(encoding="utf-8-sig"))
    if not isinstance(tree, dict):
        raise ValueError(f"it holds {shown(tree)}")
    return tree


def read_yaml(path: Path, depth: int = 0) -> dict[str, Any]:
    """Read a YAML file. Its values replace those of the files that its ``_BASE_`` names.

    ``depth`` counts the files above this one. Raises OSError with the name of a file that cannot be read,
    ValueError if one is not plain YAML, and RecursionError if a ``_BASE_`` leads back to the file itself.
    """
    if depth > MAX_BASES:
        raise RecursionError
    if not is_file(path):
        raise OSError(0, "Not a regular file" if is_there(path) else "No such file", str(path))
    try:
        tree = read_mapping(path)
        bases = tree.pop(BASE_KEY, [])
        bases = bases if isinstance(bases, list) else [bases]
        if not all(isinstance(base, str) for base in bases):
            raise ValueError(f"{BASE_KEY} = {shown(bases)} is not the path of a file")
    except ValueError as error:
        raise ValueError(f"{path}: {error}" if depth else str(error)) from error
    merged: dict[str, Any] = {}
    for base in bases:
        _merge(read_yaml(_base_path(base, path.parent), depth + 1), merged)
    _merge(tree, merged)
    return merged


def _base_path(named: str, folder: Path) -> Path:
    """Return the file that a ``_BASE_`` of a YAML in ``folder`` names, or else the one of experiments/base.

    The name of that one is own_data.yaml, base/own_data.yaml, or ../base/own_data.yaml as in a copied row. Raises
    OSError if it is in neither place.
    """
    # Unlike Path.expanduser, this function raises no error for an unknown user.
    expanded = Path(os.path.expanduser(named))  # noqa: PTH111
    beside = folder / expanded
    name = named.removeprefix("../base/").removeprefix("base/")
    if is_there(beside) or ".." in Path(name).parts or expanded.is_absolute():
        return beside
    ours = BASES / name
    if not is_file(ours):
        raise OSError(0, f"No such file there, nor in {BASES}", str(beside))
    return ours


def _merge(top: Mapping[str, Any], into: dict[str, Any]) -> None:
    for name, value in top.items():
        if isinstance(value, dict):
            # A section of its own, since YAML gives all aliases of a section the same object.
            section = into.setdefault(name, {})
            if not isinstance(section, dict):
                raise ValueError(f"{name} is a section, and a value in a file of {BASE_KEY}")
            _merge(value, section)
        else:
            into[name] = value
