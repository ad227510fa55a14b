"""Videos of a data set and what they show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Split = Literal["train", "val"]
"""What a list is for. Some official files hold the videos of both."""
Span = tuple[float, float]
"""First and last moment of a clip, in seconds from the start of the video."""
Target = int | tuple[float, ...]
"""What is learned: a class, from 0; or for each class 1.0 where it is shown and 0.0 where it is not."""


@dataclass(frozen=True)
class VideoRecord:
    """A video file, by its absolute path, and its class, from 0."""

    path: str
    label: int

    def target(self, span: Span | None = None) -> Target:
        """Return the class, which is the same for every clip."""
        return self.label

    def line(self) -> str:
        """Write everything that identifies the record in one line."""
        return f"{self.path} {self.label}"


@dataclass(frozen=True)
class Action:
    """Class ``label``, from 0, is shown from ``start_seconds`` to ``end_seconds``, both included."""

    label: int
    start_seconds: float
    end_seconds: float

    def overlaps(self, span: Span) -> bool:
        """Tell whether the action is shown at some moment of ``span``."""
        return self.start_seconds <= span[1] and span[0] <= self.end_seconds


@dataclass(frozen=True)
class ActionRecord:
    """A video file, by its absolute path, and the actions in it: none, one or many, also at the same time."""

    path: str
    actions: tuple[Action, ...]
    num_classes: int

    def target(self, span: Span | None = None) -> Target:
        """Mark the classes, out of ``num_classes``, of the actions in ``span``; None: in the whole video."""
        shown = {one.label for one in self.actions if span is None or one.overlaps(span)}
        return tuple(float(label in shown) for label in range(self.num_classes))

    def line(self) -> str:
        """Write everything that identifies the record in one line."""
        actions = (f"{one.label} {one.start_seconds} {one.end_seconds}" for one in self.actions)
        return f"{self.path} {';'.join(actions)}"


Record = VideoRecord | ActionRecord


@dataclass(frozen=True)
class VideoList:
    """What a list file holds.

    ``records``: the videos that exist, in the order of the list.
    ``missing``: absolute paths of the videos that do not exist as files, or are empty files. The caller decides
    how many may be missing.
    ``problems``: what is wrong with the list itself, one message each.
    """

    records: tuple[Record, ...] = ()
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def num_listed(self) -> int:
        """Videos in the list, whether they exist or not."""
        return len(self.records) + len(self.missing)

    @property
    def paths(self) -> tuple[str, ...]:
        """The videos that exist and then those that are missing."""
        return (*(record.path for record in self.records), *self.missing)
