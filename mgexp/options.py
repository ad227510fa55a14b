"""Read the command line of a tool: a short help, options that several tools share, and their checks."""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from mgexp.config.keys import BY_NAME
from mgexp.errors import InputError
from mgexp.registry import OwnFile, import_file

MAX_HELP_COLUMNS = 100
# The exit codes of a tool.
FAILED = 1  # the system refused a file, as on a full disk
BAD_INPUT = 2
STOPPED = 4  # Ctrl-C
OUTPUT_CLOSED = 141  # as with `| head`: 128 + SIGPIPE


class ToolParser(argparse.ArgumentParser):
    """A parser whose --help has the docstring ``text`` of the tool, up to "In detail:", and the options."""

    def __init__(self, text: str | None, usage: str = "", **others: Any) -> None:  # noqa: ANN401
        columns = min(MAX_HELP_COLUMNS, shutil.get_terminal_size().columns)

        def formatter(prog: str) -> argparse.HelpFormatter:
            return argparse.RawDescriptionHelpFormatter(prog, max_help_position=22, width=columns)

        super().__init__(
            description=(text or "").partition("\nIn detail:\n")[0],
            usage=f"%(prog)s {usage}" if usage else None,
            formatter_class=formatter,
            **others,
        )

    def parse_with_pairs(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse options among which KEY VALUE pairs may stand. They are the only words that are no options."""
        # After an option with several values, such as --rows, argparse would take the pairs as more values.
        pairs: list[str] = []
        others: list[str] = []
        words = iter(arguments)
        for word in words:
            is_key = word in BY_NAME or re.fullmatch(r"[A-Z][A-Z0-9_]*(\.[A-Z0-9_]+)+", word)
            (pairs if is_key else others).append(word)
            if is_key:
                pairs += islice(words, 1)
        return self.parse_intermixed_args([*pairs, *others])


def say(message: str) -> None:
    """Print a message on standard error, unless it is empty. It begins with the name of the tool."""
    if message:
        print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr, flush=True)


def run_tool(main: Callable[[list[str]], int], remedy: str = "") -> int:
    """Return the exit code of ``main``, also after an error. ``remedy`` says what to do after Ctrl-C."""
    try:
        try:
            return main(sys.argv[1:])
        finally:
            # A short text waits in the buffer until here.
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it ends. That must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OUTPUT_CLOSED
    except InputError as error:
        say(str(error))
        return BAD_INPUT
    except OSError as error:
        # Without a number it is an error of a library, whose traceback helps.
        if error.errno is None:
            raise
        say(f"{error.filename or 'a file'} cannot be written or read: {error.strerror}")
        return FAILED
    except KeyboardInterrupt:
        say(f"stopped by Ctrl-C: {remedy}" if remedy else "stopped by Ctrl-C")
        return STOPPED


def too_small(numbers: Mapping[str, int | None], least: int = 1) -> list[str]:
    """Name each given option whose number is less than ``least``."""
    return [
        f"{name} {value}: give {least} or more"
        for name, value in numbers.items()
        if value is not None and value < least
    ]


def not_positive(numbers: Mapping[str, float | None]) -> list[str]:
    """Name each given option whose number is not above 0, or is infinite."""
    return [
        f"{name} {value:g}: give more than 0, and no infinity"
        for name, value in numbers.items()
        # `value <= 0` would be False for NaN.
        if value is not None and not 0 < value < math.inf
    ]


def without_folder(files: Mapping[str, Path | None]) -> list[str]:
    """Name each given option whose file cannot be written where it would lie."""
    problems = []
    for name, path in files.items():
        if path is not None and not path.parent.is_dir():
            problems.append(f"{name} {path}: there is no folder {path.parent}")
        elif path is not None and path.is_dir():
            problems.append(f"{name} {path} is a folder: name a file in it")
    return problems


def not_new(files: Mapping[str, Path | None]) -> list[str]:
    """Name each given option whose file exists already, or has no folder to lie in."""
    existing = [(name, path) for name, path in files.items() if path is not None and path.exists()]
    return [*(f"{name} {path} exists" for name, path in existing), *without_folder(files)]


def local_folder(text: str) -> Path:
    """Read an option that names a folder to write."""
    if not text:
        # Path("") is the working folder, and an empty text is mostly a variable of the shell that is not set.
        raise argparse.ArgumentTypeError("it is empty; name a folder, or . for this one")
    if "://" in text:
        raise argparse.ArgumentTypeError(f"{text} is an address, no folder")
    return Path(text)


def add_import_option(parser: argparse.ArgumentParser) -> None:
    """Add --import. The file is imported while the command line is read, before any configuration."""
    parser.add_argument(
        "--import",
        dest="imports",
        metavar="FILE.py",
        action="append",
        type=_import,
        help="file with a custom network, optimizer or loss: docs/own_model.md",
    )


def _import(text: str) -> OwnFile:
    try:
        return import_file(Path(text))
    except InputError as error:
        raise argparse.ArgumentTypeError("; ".join(error.problems)) from error
