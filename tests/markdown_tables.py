"""Reads the tables of a Markdown page, so that tests look at cells and not at layout."""

import re


def section(text: str, heading: str) -> list[str]:
    """The lines below a heading, up to the next one, without the empty ones."""
    return [line for line in _below(text, heading) if line]


def _below(text: str, heading: str) -> list[str]:
    lines = text.splitlines()
    start = lines.index(heading) + 1
    ends = [number for number, line in enumerate(lines) if line.startswith("#") and number > start]
    return lines[start : min([*ends, len(lines)])]


def tables(text: str, heading: str) -> list[list[dict[str, str]]]:
    """The tables below a heading: of each its lines, as cells by column. A second column of a name has a 2."""
    found: list[list[list[str]]] = []
    before = ""
    for line in _below(text, heading):
        if line.startswith("| "):
            if not before.startswith("| "):
                found.append([])
            found[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        before = line
    result = []
    for columns, _rule, *lines in found:
        names = [f"{n} 2" if n in columns[:i] else n for i, n in enumerate(columns)]
        result.append([dict(zip(names, line, strict=True)) for line in lines])
    return result


def row(table: list[dict[str, str]], name: str) -> dict[str, str]:
    """The one line of a table whose first cell holds `name`."""
    (found,) = (line for line in table if name in next(iter(line.values())))
    return found
