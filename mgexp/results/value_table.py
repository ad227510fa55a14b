"""Compare runs of a row that were trained with other values, as in a sweep: value × mean ± interval."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgexp.config.check import PLACE_KEYS, differing_keys, value_of
from mgexp.config.load import from_yaml
from mgexp.results.estimates import Estimate, estimate_mean
from mgexp.results.load import load_runs
from mgexp.results.model import Row
from mgexp.results.report import write_report
from mgexp.results.tables import markdown, mean_text, plain_cell, seeds_cell, with_brackets
from mgexp.run.folder import METRIC_NAMES, RunsDir, find_row_folders

SEED_KEY = "RNG_SEED"

WORDS = """\
Each line is a row with the values that differ. A mean is followed by ± and half the width of its 95 % interval
(Student's t over the seeds). Two values whose intervals overlap widely cannot be told apart with so few seeds. The
best of many values is also the luckiest: train it again with new seeds before you believe it."""


@dataclass(frozen=True)
class Point:
    """The finished runs of a row with one choice of values. ``values`` are the keys that differ between points."""

    experiment: str
    values: Mapping[str, object]
    row: Row


def read_points(root: Path) -> tuple[Point, ...]:
    """Read the rows below ``root`` that were trained with several choices of values; without such rows, nothing.

    Raises InputError if a run cannot be understood.
    """
    found: defaultdict[tuple[str, str], list[tuple[Row, Mapping[str, object]]]] = defaultdict(list)
    for folder in find_row_folders(root):
        configs = {name: run.config_yaml for name, _, run in folder.runs()}
        for row in load_runs(folder.root).finished:
            experiment = next(iter(row.runs.values())).experiment
            values = from_yaml(configs[row.name])
            # Rows of two projects may have the same name. Their lists tell them apart.
            videos = "" if "/" in experiment else str(value_of(values, "DATA.TRAIN_LIST"))
            found[experiment, videos].append((row, values))
    points = []
    for (experiment, _), rows in found.items():
        first = rows[0][1]
        keys = {
            key
            for _, values in rows[1:]
            for key, _, _ in differing_keys(first, values)
            if key != SEED_KEY and key not in PLACE_KEYS
        }
        if keys:
            points += [
                Point(experiment, {key: value_of(values, key) for key in sorted(keys)}, row)
                for row, values in rows
            ]
    return tuple(sorted(points, key=_order))


def _order(point: Point) -> tuple[object, ...]:
    """Sort by experiment, and then by value: numbers by size, before everything else."""
    values = (
        (0, value, "") if isinstance(value, (int, float)) else (1, math.inf, str(value))
        for value in point.values.values()
    )
    return point.experiment, *values


def value_table(points: Sequence[Point]) -> list[str]:
    """Write the points as a Markdown table: value, seeds, mean ± interval, and what the training took."""
    keys = sorted({key for point in points for key in point.values})
    metrics = {
        METRIC_NAMES["map" if run.top1 is None else "top1"]
        for point in points
        for run in point.row.runs.values()
    }
    headings = (
        "row",
        *keys,
        "seeds",
        f"{' or '.join(sorted(metrics))} (%)",
        "steps",
        "training (s)",
    )
    lines = [
        [
            plain_cell(point.experiment),
            *(plain_cell(str(point.values.get(key, ""))) for key in keys),
            seeds_cell(point.row.runs),
            plus_minus(estimate_mean(point.row.scores)),
            mean_text(point.row.each(lambda run: run.steps)),
            mean_text(point.row.each(lambda run: run.train_seconds)),
        ]
        for point in points
    ]
    return markdown(headings, lines)


def plus_minus(one: Estimate | None) -> str:
    """Write a mean and half its 95 % interval: "93.20 ± 0.44". One seed has no interval."""
    if one is None or one.interval is None:
        return f"{one.mean:.2f}, one seed" if one else ""
    return f"{one.mean:.2f} ± {(one.interval[1] - one.interval[0]) / 2:.2f}"


def write_value_report(root: Path, output: Path | None = None) -> RunsDir | None:
    """Write report.md and report.html with the values below ``root``, into ``output`` or else into ``root``.

    If no values differ, write nothing and return None.
    """
    points = read_points(root)
    if not points:
        return None
    place = RunsDir(output or root)
    lines = [
        f"# {root.resolve().name}: one line for each value",
        "",
        WORDS,
        "",
        *with_brackets(value_table(points)),
    ]
    write_report(place, "\n".join(lines) + "\n")
    return place
