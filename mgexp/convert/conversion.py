"""Record a conversion: what every key of a PySlowFast YAML becomes, and which problems there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from mgexp.config.keys import BY_NAME
from mgexp.config.values import as_lists
from mgexp.convert.keys import CONVERTED, read


@dataclass(frozen=True)
class Note:
    """A key of PySlowFast with its ``value``, and the reason ``why`` it is not simply kept."""

    name: str
    value: object
    why: str

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name} = {_written(self.value)}"


@dataclass
class Conversion:
    """The ``given`` keys of a PySlowFast YAML, by dotted names, and our ``keys`` for them so far.

    In the end each given key is in exactly one list: ``kept`` (we have the same key with the same
    value), ``changed`` (other keys or values of ours have its meaning), ``dropped`` (it means
    nothing here), ``unknown`` or ``refused`` (it is a problem).
    """

    given: Mapping[str, object]
    keys: dict[str, Any] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    changed: list[Note] = field(default_factory=list)
    dropped: list[Note] = field(default_factory=list)
    unknown: list[Note] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # A value that cannot be read is refused at once. PySlowFast's default takes its place, so
        # that all other keys are judged as well.
        self._values = dict(CONVERTED)
        for name in (name for name in CONVERTED if name in self.given):
            try:
                self._values[name] = read(name, self.given[name])
            except ValueError as error:
                self.refuse(name, str(error))

    @property
    def num_processes(self) -> int:
        """Processes that share a mini-batch: the GPUs of all machines; 1 on a CPU."""
        machines, gpus = self.value("NUM_SHARDS"), self.value("NUM_GPUS")
        return int(max(1, machines) * max(1, gpus))

    @property
    def num_samples(self) -> int:
        """Clips of a video that are drawn together. An epoch of PySlowFast has so many times the clips of ours."""
        return int(self.value("AUG.NUM_SAMPLE")) if self.value("AUG.ENABLE") else 1

    def value(self, name: str) -> Any:  # noqa: ANN401 - of the key's own type
        """Return the value of a key that is converted; PySlowFast's default where it is not given."""
        return self._values[name]

    def keep(self, *names: str) -> None:
        """Take over keys that have the same name and value here."""
        for name in names:
            self.keys[name] = self.value(name)
            if name in self.given:
                self.kept.append(name)

    def keep_if(self, is_used: object, why_not: str, *names: str) -> None:
        """Take over keys if they have an effect; otherwise drop them."""
        if is_used:
            self.keep(*names)
        else:
            self.drop(why_not, *names)

    def keep_as(self, name: str, value: object, why: str) -> None:
        """Take over a key of the same name with ``value``, which may differ from PySlowFast's value."""
        if value == self.value(name):
            self.keep(name)
        else:
            self.change(name, why, **{name.replace(".", "__"): value})

    def require(self, name: str, is_so: object, here: str) -> None:
        """Drop a key if its value means what mgexp always does; refuse any other value.

        ``is_so``: whether the value means that. ``here``: what mgexp does, in words.
        """
        if not is_so:
            self.refuse(name, f"has no counterpart: {here}")
        self.drop(here, name)

    def change(self, name: str, why: str, **ours: object) -> None:
        """Replace a key by ``ours``, keys of mgexp written SECTION__KEY=value.

        There is a note if the key is given, or if PySlowFast's default means something else than
        our defaults.
        """
        found = {key.replace("__", "."): value for key, value in ours.items()}
        self.keys.update(found)
        differs = not found or any(BY_NAME[key].default != value for key, value in found.items())
        if name in self.given or differs:
            self.changed.append(Note(name, self.given.get(name, self._values.get(name)), why))

    def drop(self, why: str, *names: str) -> None:
        """Drop the keys that are given, unless they are in a list already."""
        # So a caller may drop a whole group of keys after it has changed or refused some of them.
        settled = self.settled()
        for name in names:
            if name in self.given and name not in settled:
                self.dropped.append(Note(name, self.given[name], why))

    def refuse(self, name: str, why: str) -> None:
        """Report a problem with the value of a key: ``why`` follows the name and the value in the message."""
        value = self.given.get(name, self._values.get(name))
        default = "" if name in self.given else " (PySlowFast's default)"
        self.problems.append(f"{name} = {_written(value)}{default} {why}")
        self.refused.append(name)

    def settled(self) -> set[str]:
        """Return the names of all keys that are in one of the lists."""
        notes = (*self.changed, *self.dropped, *self.unknown)
        return {*self.kept, *self.refused, *(note.name for note in notes)}

    def yaml_text(self, comment: str) -> str:
        """Write the YAML of ``keys``, section by section, under ``comment``."""
        lines = [f"# {line}" for line in comment.splitlines()]
        # Written by hand, because PyYAML would put lists on several lines, and write true for True.
        section = ""
        for name, value in self.keys.items():
            *above, last = name.split(".")
            if above and above[0] != section:
                section = above[0]
                lines.append(f"{section}:")
            lines.append(f"{'  ' if above else ''}{last}: {_yaml_value(value)}")
        return "\n".join(lines) + "\n"

    def report(self) -> str:
        """List what became of the keys, a line for each key. Keys that are kept are only counted."""
        lines = [f"{len(self.kept)} keys mean the same here, and are kept"]
        changed = "become other keys or values, or have a slightly different meaning"
        unknown = "are unknown, and dropped: check what your PySlowFast does with them"
        for words, sign, notes in (
            (changed, " ->", self.changed),
            ("are dropped", ":", self.dropped),
            (unknown, ":", self.unknown),
        ):
            if notes:
                lines.append(f"{len(notes)} {words}")
                lines += [f"  {note}{sign} {note.why}" for note in notes]
        return "\n".join(lines)


def _written(value: object) -> str:
    """Write a value as people do: text without quotes."""
    return value if isinstance(value, str) and value else repr(value)


def _yaml_value(value: object) -> str:
    """Write a value in one line of YAML: True, and 34 instead of 34.0, also in lists."""

    def short(item: object) -> object:
        if isinstance(item, list):
            return [short(part) for part in item]
        return int(item) if isinstance(item, float) and item.is_integer() else item

    if isinstance(value, bool):
        return str(value)
    text = yaml.safe_dump(
        short(as_lists(value)), default_flow_style=True, allow_unicode=True, width=10**6
    )
    # PyYAML ends a single value with the line "...", the end of a document.
    return text.removesuffix("\n").removesuffix("\n...")
