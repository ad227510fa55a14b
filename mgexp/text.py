"""Write text for people: values and names in one safe line, numbers with nouns and units, rows in columns."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

MAX_SHOWN = 200  # the most characters of a value that a message shows
# The Unicode categories of characters that a line must not contain: control characters, surrogates (which stand
# for bytes that are not UTF-8), and line ends.
FORBIDDEN = ("Cc", "Cs", "Zl", "Zp")


def is_plain(text: str) -> bool:
    """Return whether ``text`` is one line without control characters, which a file can hold."""
    # isprintable is quick. It also refuses characters such as a no-break space, which may occur in a path.
    return text.isprintable() or not any(unicodedata.category(c) in FORBIDDEN for c in text)


def escaped(text: str) -> str:
    """Write ``text`` in one line, so that it cannot forge a line of a log or send commands to the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(value: object) -> str:
    """Write a value for a message, in one line. A long value is cut off."""
    # Python raises ValueError for integers of more than 4,300 digits.
    try:
        text = escaped(repr(value))
    except (ValueError, RecursionError):
        return "a value too large to show"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows as columns of text. The first column is flush left, the others flush right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def counted(number: float, singular: str, plural: str = "") -> str:
    """Write a number with its noun, and perhaps a verb: 1 task, 1,200 tasks, 1.5 points, 2 classes have."""
    text = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{text} {singular if text == '1' else plural or f'{singular}s'}"


def duration(seconds: float) -> str:
    """Write seconds in a readable unit: 12.3 s, 14 min 13 s, 49 h 55 min."""
    # The rounded number decides, so that there are neither 120.0 s nor 60 min.
    if round(seconds, 1) < 120:
        return f"{seconds:.1f} s"
    if round(seconds) < 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes:02d} min"
