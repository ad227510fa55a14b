"""A conversion in the making: what every given key became, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mgexp.config.keys import BY_NAME
from mgexp.convert.keys import CONVERTED


@dataclass(frozen=True)
class Note:
    """What became of one key, and why."""

    name: str
    value: object
    why: str

    def __str__(self) -> str:
        value = "" if self.value is None else f" = {shown(self.value)}"
        return f"{self.name}{value}"


@dataclass
class Draft:
    """The ``given`` keys of a PySlowFast YAML, by dotted names, and the ``keys`` of ours found so far.

    Each given key ends in exactly one of ``kept`` (the same key with the same value), ``changed`` (said by other
    keys or values), ``dropped`` (nothing here is said by it), ``unknown`` and ``refused``.
    """

    given: Mapping[str, object]
    keys: dict[str, object] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    changed: list[Note] = field(default_factory=list)
    dropped: list[Note] = field(default_factory=list)
    unknown: list[Note] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _values: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, converted in CONVERTED.items():
            self._values[name] = converted.default
            if name in self.given:
                self._read(name)

    def value(self, name: str) -> Any:  # noqa: ANN401 - of the key's own kind
        """The value of a key that is converted, of its kind; PySlowFast's default where it is not given."""
        return self._values[name]

    def keep(self, *names: str) -> None:
        """The same key with the same value."""
        for name in names:
            self.keys[name] = self.value(name)
            if name in self.given:
                self.kept.append(name)

    def change(self, name: str, why: str, **ours: object) -> None:
        """The key is said by ``ours``, SECTION__KEY=value.

        Noted where it is given, or where PySlowFast's default says something that our defaults do not.
        """
        found = {key.replace("__", "."): value for key, value in ours.items()}
        self.keys.update(found)
        says = not found or any(BY_NAME[key].default != value for key, value in found.items())
        if name in self.given or says:
            self.changed.append(Note(name, self.given.get(name, self._values.get(name)), why))

    def drop(self, why: str, *names: str) -> None:
        """Of the keys, those that are given mean nothing here."""
        for name in names:
            if name in self.given:
                self.dropped.append(Note(name, self.given[name], why))

    def refuse(self, name: str, why: str) -> None:
        """A problem: the value has no counterpart."""
        value = self.given.get(name, self._values.get(name))
        default = "" if name in self.given else " (PySlowFast's default)"
        self.problems.append(f"{name} = {shown(value)}{default} {why}")
        self.refused.append(name)

    def settled(self) -> set[str]:
        """Names of the keys of which it is known what they became."""
        notes = (*self.changed, *self.dropped, *self.unknown)
        return {*self.kept, *self.refused, *(note.name for note in notes)}

    def _read(self, name: str) -> None:
        try:
            self._values[name] = CONVERTED[name].read(self.given[name])
        except ValueError as error:
            self.refuse(name, str(error))


def shown(value: object) -> str:
    """A value as people write it."""
    return value if isinstance(value, str) and value else repr(value)
