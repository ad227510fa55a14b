"""Compare runs of a row that were trained with other values, as in a sweep: value × mean ± interval."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mgexp.config.check import PLACE_KEYS, differing_keys, value_of
from mgexp.config.load import file_values
from mgexp.results.comparison import Comparison, Row
from mgexp.results.render import render_page
from mgexp.results.report import write_report
from mgexp.results.store import load_runs
from mgexp.run.folder import RunsDir, find_row_folders

SEED_KEY = "RNG_SEED"


@dataclass(frozen=True)
class Point:
    """The finished runs of a row with one choice of values. ``values`` are the keys that differ between points."""

    experiment: str
    values: Mapping[str, object]
    row: Row


def read_points(root: Path) -> tuple[Point, ...]:
    """Read the rows below ``root`` that were trained with several choices of values."""
    groups: defaultdict[tuple[str, str], list[tuple[Row, Mapping[str, object]]]] = defaultdict(list)
    for folder in find_row_folders(root):
        configs = {name: run_dir.config_yaml for name, _, run_dir in folder.runs()}
        for row in load_runs(folder.root).finished:
            experiment = row.first.experiment
            values = file_values(configs[row.name])
            # Rows of two projects may have the same name. Their lists tell them apart.
            videos = "" if "/" in experiment else str(value_of(values, "DATA.TRAIN_LIST"))
            groups[experiment, videos].append((row, values))
    points = []
    for (experiment, _), rows in groups.items():
        first = rows[0][1]
        keys = {key for _, values in rows for key, _, _ in differing_keys(first, values)}
        keys -= {SEED_KEY, *PLACE_KEYS}
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


def write_value_report(root: Path, output: Path | None = None) -> RunsDir | None:
    """Write the report on the values below ``root``, by default into ``root``. None if no values differ."""
    points = read_points(root)
    if not points:
        return None
    text = render_page(
        "values.md.j2",
        title=root.resolve().name,
        keys=sorted({key for point in points for key in point.values}),
        metrics=sorted({Comparison((point.row,)).metric for point in points}),
        points=points,
    )
    place = RunsDir(output or root)
    write_report(place, text)
    return place
