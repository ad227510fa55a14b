"""Videos of a data set, and the classes that they show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from mgexp.video.reader import Region, Size

Split = Literal["train", "val"]
"""The use of a list. Some official files hold the videos for both uses."""
Span = tuple[float, float]
"""First and last moment of a clip, in seconds from the start of the video."""
Target = int | tuple[float, ...] | tuple[tuple[float, ...], ...]
"""The label of a clip: its class, from 0; or a number for each class, 1.0 if the clip shows it and 0.0 if not;
or a row for each box of an image."""


@dataclass(frozen=True)
class Shown:
    """What a clip shows of a video: a ``region``, in pixels of its ``size``, and whether it is mirrored."""

    size: Size
    region: Region
    is_flipped: bool


@dataclass(frozen=True)
class VideoRecord:
    """A video file, by its absolute path, and its class, from 0.

    ``part``: the seconds of the video that clips show. None: all of them.
    """

    path: str
    label: int
    part: Span | None = None

    def target(self, span: Span | None = None, shown: Shown | None = None) -> Target:
        return self.label

    def line(self) -> str:
        part = f" {self.part[0]} {self.part[1]}" if self.part else ""
        return f"{self.path}{part} {self.label}"


@dataclass(frozen=True)
class Action:
    """An action: class ``label``, from 0, is shown from ``start_seconds`` to ``end_seconds``, both included."""

    label: int
    start_seconds: float
    end_seconds: float

    def overlaps(self, span: Span) -> bool:
        return self.start_seconds <= span[1] and span[0] <= self.end_seconds


@dataclass(frozen=True)
class ActionRecord:
    """A video file, by its absolute path, and its actions: none, one or many, perhaps at the same time."""

    path: str
    actions: tuple[Action, ...]
    num_classes: int
    part: Span | None = None

    def target(self, span: Span | None = None, shown: Shown | None = None) -> Target:
        """Return a number per class: 1.0 if an action in ``span`` has this class, and 0.0 if not.

        If ``span`` is None, all actions of the video count.
        """
        seen = {action.label for action in self.actions if span is None or action.overlaps(span)}
        return tuple(float(label in seen) for label in range(self.num_classes))

    def line(self) -> str:
        actions = (
            f"{action.label} {action.start_seconds} {action.end_seconds}" for action in self.actions
        )
        part = f" {self.part[0]} {self.part[1]}" if self.part else ""
        return f"{self.path}{part} {';'.join(actions)}"


class Record(Protocol):
    """A video, or an image, of a list: its absolute path, the seconds that clips show, and its labels."""

    @property
    def path(self) -> str: ...
    @property
    def part(self) -> Span | None: ...

    def target(self, span: Span | None = None, shown: Shown | None = None) -> Target:
        """Return the label of the video, or of a clip that shows ``span`` and of the image ``shown``."""

    def line(self) -> str:
        """Identify the video and its labels in a line."""


@dataclass(frozen=True)
class VideoList:
    """The content of a list file.

    ``records``: the videos that exist, in the order of the list.
    ``missing``: absolute paths of the videos that do not exist as files, are empty files, or are quarantined. The
    caller decides how many may be missing.
    ``quarantined``: absolute paths of the videos in DATA.QUARANTINE, whether they exist or not.
    ``problems``: a message for each fault of the list itself.
    """

    records: tuple[Record, ...] = ()
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    quarantined: frozenset[str] = frozenset()

    @property
    def num_listed(self) -> int:
        return len(self.records) + len(self.missing)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the existing videos, followed by the paths of the missing videos."""
        return (*(record.path for record in self.records), *self.missing)
