"""experiments/published.csv: what was published of each row, with its source; written by people."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from pathlib import Path

from mgexp.errors import InputError
from mgexp.record.results import METRICS


@dataclass(frozen=True)
class Published:
    """A line; the fields are its columns, in order. `value` is percent, as it was published."""

    experiment: str
    metric: str
    value: str
    source: str
    note: str


def read_published(published_csv: Path) -> tuple[Published, ...]:
    """Every line; none where there is no file. Raises InputError with all that is wrong."""
    if not published_csv.exists():
        return ()
    with published_csv.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, restkey="more", restval="")
        lines = list(reader)
    columns = [field.name for field in fields(Published)]
    if list(reader.fieldnames or ()) != columns:
        raise InputError([f"{published_csv}: its first line is not {','.join(columns)!r}"])
    problems = []
    for number, line in enumerate(lines, start=2):
        problems += [f"{published_csv}, line {number}: {text}" for text in _problems(line)]
    if problems:
        raise InputError(problems)
    return tuple(Published(**line) for line in lines)


def _problems(line: dict[str, str]) -> list[str]:
    problems = []
    if line.pop("more", None):
        problems.append("has too many cells; put text with a comma into quotes")
    if line["metric"] not in METRICS:
        problems.append(f"the metric {line['metric']!r} is none of {', '.join(METRICS)}")
    if not line["value"].replace(".", "", 1).isdecimal():
        problems.append(f"the value {line['value']!r} is no number of percent")
    if not line["source"]:
        problems.append("has no source")
    return problems
