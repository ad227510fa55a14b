"""What is wrong with a list of videos, told so that a list of many wrong lines stays readable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

MAX_LISTED = 10
"""Problems of one kind that are listed; of the others only the number."""


class ProblemLog:
    """Problems by kind, each at a place; a kind lists its first ones and the number of the others.

    ``remedies``: what to do about each kind, in the order in which they are told.
    """

    def __init__(self, remedies: Mapping[str, str]) -> None:
        self.remedies = remedies
        self.places: dict[str, list[str]] = {kind: [] for kind in remedies}

    def add(self, kind: str, place: str, value: object) -> None:
        """Notes a problem of a known kind."""
        self.places[kind].append(f"{place}: {value!r}")

    def messages(self) -> Iterator[str]:
        """One message each: what, where, the value, what to do."""
        for kind, places in self.places.items():
            for place in places[:MAX_LISTED]:
                yield f"{kind}, {place}: {self.remedies[kind]}"
            if len(places) > MAX_LISTED:
                yield f"{kind}: ... and {len(places) - MAX_LISTED} more"
