"""Names of videos below one root folder, and a few of many."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")


class Root:
    """The folder that the paths of videos are relative to. Paths may name it directly or through links."""

    def __init__(self, folder: Path) -> None:
        self.folder = os.path.normpath(folder.absolute())
        folders = (self.folder, os.path.realpath(folder))
        # The separator at the end keeps /data/video2 from counting as a folder inside /data/video.
        self._inside = tuple(name.rstrip(os.sep) + os.sep for name in folders)

    def path(self, name: str) -> str:
        """Return the absolute path of ``name``. If the folder is a link, both its names lead to the same path."""
        path = os.path.normpath(os.path.join(self.folder, name))
        return self._inside[0] + self.name(path) if path.startswith(self._inside) else path

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
