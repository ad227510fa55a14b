"""Add the options that several tools share, and check options before any long work."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from mgexp.errors import InputError
from mgexp.registry import OwnFile, import_file
from mgexp.run.remote import is_remote


def too_small(numbers: Mapping[str, int | None], least: int = 1) -> list[str]:
    """Name each option whose number is less than ``least``. None means that it was not given."""
    return [
        f"{name} {value}: give {least} or more"
        for name, value in numbers.items()
        if value is not None and value < least
    ]


def not_positive(numbers: Mapping[str, float | None]) -> list[str]:
    """Name each option whose number is not above 0. None means that it was not given."""
    return [
        f"{name} {value:g}: give more than 0"
        for name, value in numbers.items()
        # `value <= 0` would be False for NaN.
        if value is not None and not value > 0
    ]


def without_folder(files: Mapping[str, Path | None]) -> list[str]:
    """Name each option whose file would lie in a folder that does not exist. None means that it was not given."""
    return [
        f"{name} {path}: there is no folder {path.parent}; make it first"
        for name, path in files.items()
        if path is not None and not path.parent.is_dir()
    ]


def local_folder(text: str) -> Path:
    """Read an option that names a folder to write. Refuse an address: argparse shows the message."""
    if is_remote(text):
        remedy = "give a folder of this machine, and copy it when the work is done"
        problem = "results are written with locks, atomic renames and appended lines, which addresses do not have"
        raise argparse.ArgumentTypeError(f"{text}: {problem}: {remedy}")
    return Path(text)


def add_import_option(parser: argparse.ArgumentParser) -> None:
    """Add --import. The file is imported while the command line is read, before any configuration."""
    parser.add_argument(
        "--import",
        dest="imports",
        metavar="FILE.py",
        action="append",
        type=_import,
        help="file that registers a network, an optimizer, a loss or a reader of addresses of one's own; see "
        "docs/own_model.md and docs/clip_store.md",
    )


def _import(text: str) -> OwnFile:
    try:
        return import_file(Path(text))
    except InputError as error:
        raise argparse.ArgumentTypeError("; ".join(error.problems)) from error


def add_measuring_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of tools that measure a row: which row, and where the numbers go."""
    add = parser.add_argument
    add("--cfg", required=True, type=Path, help="YAML of a row, in experiments/")
    add_import_option(parser)
    add("--json", action="store_true", help="print everything that was measured, for programs")
    add("--output", type=Path, metavar="FILE", help="write that to a file too")
    add("overrides", nargs="*", metavar="KEY VALUE", help="configuration keys")


def add_timing_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of tools that time the steps of a row: the measuring options, and how many steps to time."""
    add_measuring_options(parser)
    add = parser.add_argument
    add("--steps", type=int, default=5, metavar="N", help="number of steps to time (default: 5)")
    text = "number of steps before those, not timed (default: 2)"
    add("--warmup", type=int, default=2, metavar="N", help=text)


def timing_problems(options: argparse.Namespace) -> list[str]:
    """Name what is wrong with the options of ``add_timing_options``."""
    return [
        *too_small({"--steps": options.steps, "--warmup": options.warmup}),
        *without_folder({"--output": options.output}),
    ]
