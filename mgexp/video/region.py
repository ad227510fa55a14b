"""A rectangle of a picture, and how a reader learns which one is wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Size = tuple[int, int]
"""Height and width of a picture, in pixels."""


@dataclass(frozen=True)
class Region:
    """A rectangle of a frame, in source pixels: rows [top, top + height), columns [left, left + width)."""

    top: int
    left: int
    height: int
    width: int

    @property
    def rows(self) -> slice:
        """Of a picture."""
        return slice(self.top, self.top + self.height)

    @property
    def columns(self) -> slice:
        """Of a picture."""
        return slice(self.left, self.left + self.width)

    def on(self, size: Size, copy_size: Size) -> Region:
        """The same part of a copy: ``size`` is that of the source, in whose pixels this region is.

        The edges are rounded to whole pixels of the copy.
        """
        top, bottom = _scaled(self.top, self.top + self.height, copy_size[0] / size[0])
        left, right = _scaled(self.left, self.left + self.width, copy_size[1] / size[1])
        return Region(top, left, bottom - top, right - left)


RegionOf = Callable[[Size], Region]
"""From the size of a picture to the part of it that is wanted."""


def whole(size: Size) -> Region:
    """All of a picture of ``size``."""
    return Region(0, 0, *size)


def _scaled(first: int, end: int, factor: float) -> tuple[int, int]:
    """[first, end) times ``factor``, in whole pixels, at least one of them."""
    start = round(first * factor)
    return start, max(start + 1, round(end * factor))
