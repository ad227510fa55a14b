"""Names of videos below one root folder, and a few of many."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")


class Root:
    """The folder that holds all videos. Paths may name it directly or through links.

    With ``allow_outside`` (DATA.ALLOW_OUTSIDE), videos may also lie anywhere else.
    """

    def __init__(self, folder: Path, allow_outside: bool = False) -> None:
        self.allow_outside = allow_outside
        self.folder = os.path.normpath(folder.absolute())
        folders = (self.folder, os.path.realpath(folder))
        # The separator at the end keeps /data/video2 from counting as a folder inside /data/video.
        self._inside = tuple(name.rstrip(os.sep) + os.sep for name in folders)

    def path(self, name: str) -> str | None:
        """Return the absolute path of ``name``; None if it lies outside and ``allow_outside`` is not set.

        If the folder is a link, both its names lead to the same path. Links inside it are not followed.
        """
        # normpath removes "..", so that a name such as ../other/a.mp4 is seen to lie outside.
        path = os.path.normpath(os.path.join(self.folder, name))
        if path.startswith(self._inside):
            return self._inside[0] + self.name(path)
        return path if self.allow_outside else None

    def name(self, path: str) -> str:
        """Return the name of a video in clip stores and quarantines: relative to the folder if it is inside.

        So a data set can be moved together with its store and its quarantine.
        """
        prefix = next(filter(path.startswith, self._inside), "")
        return path.removeprefix(prefix)


def evenly_spaced(items: Sequence[Item], num: int) -> tuple[Item, ...]:
    """Choose ``num`` of the items, evenly spaced and beginning with the first; all of them if ``num`` is 0."""
    if num == 0 or num >= len(items):
        return tuple(items)
    return tuple(items[position * len(items) // num] for position in range(num))
