"""What can be wrong with the options of any tool: found before time is spent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def too_small(numbers: Mapping[str, int | None], least: int = 1) -> list[str]:
    """A problem for each option whose number is less than ``least``; None: not given."""
    return [
        f"{name} {value}: give {least} or more"
        for name, value in numbers.items()
        if value is not None and value < least
    ]


def not_positive(numbers: Mapping[str, float | None]) -> list[str]:
    """A problem for each option whose number is not above 0; None: not given."""
    return [
        f"{name} {value:g}: give more than 0"
        for name, value in numbers.items()
        if value is not None and not value > 0  # nor is NaN
    ]


def without_folder(files: Mapping[str, Path | None]) -> list[str]:
    """A problem for each option whose file would lie in a folder that is not there; None: not given."""
    return [
        f"{name} {path}: there is no folder {path.parent}; make it first"
        for name, path in files.items()
        if path is not None and not path.parent.is_dir()
    ]
