"""Define the two errors with which mgexp stops on purpose, and write what other errors say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mgexp.text import counted, escaped


class InputError(Exception):
    """An error of the configuration or data. One message lists every problem (exit code 2)."""

    def __init__(self, problems: Sequence[str]) -> None:
        # Indent all lines but the first. Then no line inside a name or a value looks like another problem. The
        # problems of an error may become those of another one, which indents them no further.
        self.problems = tuple(
            "\n    ".join(escaped(line).removeprefix("    ") for line in problem.split("\n"))
            for problem in problems
        )
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(f"{counted(len(self.problems), 'problem')} found:\n{lines}")

    def __reduce__(self) -> tuple[type[InputError], tuple[Sequence[str]]]:
        # An error comes from another process as a pickle, which by default makes it anew from the message.
        return type(self), (self.problems,)


@contextmanager
def collected(problems: list[str]) -> Iterator[None]:
    """Add the problems of an InputError in the block to ``problems``, and continue after the block."""
    try:
        yield
    except InputError as error:
        problems += error.problems


def raise_problems(problems: Sequence[str]) -> None:
    """Raise one InputError that lists every problem once. Do nothing if there are none."""
    if problems:
        raise InputError(list(dict.fromkeys(problems)))


def listed(items: Sequence[str], most: int = 20, separator: str = ", ") -> str:
    """Join the first ``most`` items, and say how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return separator.join(escaped(item) for item in items[:most]) + more


def first_line(error: BaseException) -> str:
    """Return the line of ``error`` that is for the user. The others say where in C++ torch raised it."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class TrainingError(Exception):
    """An error after which a run cannot continue, such as a non-finite loss (exit code 1)."""
