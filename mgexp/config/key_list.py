"""List the configuration keys for people, as text for a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from mgexp.config.keys import ANY, BY_NAME, Key, default_config
from mgexp.config.values import as_lists, is_text
from mgexp.errors import InputError

TOP = "top level"
"""The heading of the keys that lie in no section."""
PLAIN_TYPES = {bool: "True or False", int: "a whole number", float: "a number"}
INDENT = " " * 4


def listed_keys(section: str = "") -> str:
    """List the keys of ``section``, or of all sections, as text for a terminal of 100 columns.

    Raises InputError for a section that does not exist.
    """
    return "\n\n".join(
        "\n".join([f"{title}: {about}", *(_lines(key) for key in keys)])
        for title, about, keys in sections(section)
    )


def sections(only: str = "") -> Iterator[tuple[str, str, list[Key]]]:
    """Yield (name, what it is about, keys) of each section, in the order of ``Config``."""
    tree = default_config()
    names = list(dict.fromkeys(key.name.rpartition(".")[0] for key in BY_NAME.values()))
    wanted = only.upper().rstrip(".")
    if wanted and wanted not in names:
        known = ", ".join(filter(None, names))
        raise InputError([f"--list-keys {only}: the sections are {known}"])
    for name in [wanted] if wanted else names:
        about = getattr(tree, name).__doc__ if name else "Keys that lie in no section."
        keys = [key for key in BY_NAME.values() if key.name.rpartition(".")[0] == name]
        yield name or TOP, " ".join(str(about).split()), keys


def _lines(key: Key) -> str:
    """Write one key for a terminal: name and default, then what it does, then values and source."""
    second = f"{values_text(key)}; {key.source}"
    wrapped = [
        line
        for text in (f"{key.meaning}.", f"[{second}]")
        for line in textwrap.wrap(text, 100, initial_indent=INDENT, subsequent_indent=INDENT)
    ]
    return "\n".join([f"  {key.name} = {default_text(key)}", *wrapped])


def default_text(key: Key) -> str:
    if key.default == "":
        return "''"
    # √½ has 16 digits, which nobody reads.
    return re.sub(r"\d+\.\d{5,}", lambda m: f"{float(m[0]):.4g}", str(as_lists(key.default)))


def values_text(key: Key) -> str:
    """Write which values the key takes: its legal values, or else its type."""
    if key.legal is not ANY:
        kind = "whole numbers, " if key.type is int else ""
        return kind + key.legal.words
    if key.type in PLAIN_TYPES:
        return PLAIN_TYPES[key.type]
    return "text" if is_text(key.type) else f"like {default_text(key)}"
