"""The two errors with which mgexp stops on purpose, and how their messages list things."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mgexp.text import escaped


class InputError(Exception):
    """Bad configuration or data: one message that lists every problem found (exit code 2).

    Each problem says what is wrong, where, with which value, and what to do about it.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        # Lines after the first are indented, so that no line in a name or a value can pass for a problem.
        self.problems = tuple(
            "\n    ".join(escaped(line) for line in problem.split("\n")) for problem in problems
        )
        noun = "problem" if len(self.problems) == 1 else "problems"
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(f"{len(self.problems)} {noun} found:\n{lines}")


@contextmanager
def collected(problems: list[str]) -> Iterator[None]:
    """Add the problems of an InputError in the block to ``problems``, and continue after the block.

    So one message can list the problems of several checks. Variables that the block sets may be missing then.
    """
    try:
        yield
    except InputError as error:
        problems += error.problems


def raise_problems(problems: Sequence[str]) -> None:
    """Raise one InputError that lists every problem, each once; do nothing if there are none."""
    if problems:
        raise InputError(list(dict.fromkeys(problems)))


def listed(items: Sequence[str], most: int = 20, separator: str = ", ") -> str:
    """Join the first ``most`` items, and say how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return separator.join(escaped(item) for item in items[:most]) + more


class TrainingError(Exception):
    """A run that cannot go on, such as a non-finite loss (exit code 1)."""
