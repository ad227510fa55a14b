"""YAML of strangers: plain values, of a size that is read at once; nothing in it is code, or grows."""

from __future__ import annotations

import io
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from fvcore.common.config import BASE_KEY, CfgNode

from mgexp.record.files import is_file, is_there
from mgexp.text import shown

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
