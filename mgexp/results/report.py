"""Write a report as Markdown and as one HTML file with its figures inside; and the report on a sweep."""

from __future__ import annotations

import math
from base64 import b64encode
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from markdown import Markdown

from mgexp.config.check import PLACE_KEYS, differing_keys, value_of
from mgexp.config.load import file_values
from mgexp.results.comparison import Comparison, Row
from mgexp.results.render import TEMPLATES, Picture, render_page
from mgexp.results.store import load_runs
from mgexp.run.files import atomic_file, atomic_write_text
from mgexp.run.folder import RunsDir, find_row_folders

ASSETS = Path(__file__).parent / "assets"
RAW_OR_LINK = ("html", "link", "reference", "short_reference", "autolink", "automail")
"""Markdown that a report never uses. `to_html` switches it off, so names of rows and classes stay plain text."""


def to_html(text: str, pictures: Sequence[Picture]) -> str:
    """Turn a report in Markdown into a page."""
    converter = Markdown(extensions=["tables", "sane_lists", "fenced_code"])
    # Markdown keeps HTML as it is. The name of a class comes from a user's file and could contain a script.
    converter.preprocessors.deregister("html_block")
    for name in RAW_OR_LINK:
        converter.inlinePatterns.deregister(name)
    body = converter.convert(text)
    # The Markdown file links to the PNG of a figure. Here the SVG itself replaces the link, so the page is one
    # file.
    for picture in pictures:
        alt, data = escape(picture.alt), b64encode(picture.svg).decode()
        image = f'<img alt="{alt}" src="data:image/svg+xml;base64,{data}">'
        link = f'<img alt="{alt}" src="{escape(picture.link)}" />'
        body = body.replace(link, f'<span class="scroll figure">{image}</span>')
    body = body.replace("<table>", '<div class="scroll"><table>')
    body = body.replace("</table>", "</table></div>")
    page, style = (
        (ASSETS / name).read_text(encoding="utf-8") for name in ("page.html", "page.css")
    )
    title = escape(text.splitlines()[0].removeprefix("# "))
    return page.format(title=title, style=style, body=body)


def write_pictures(folder: RunsDir, pictures: Sequence[Picture]) -> None:
    for picture in pictures:
        folder.figures.mkdir(parents=True, exist_ok=True)
        for kind, content in (("png", picture.png), ("svg", picture.svg)):
            with atomic_file(folder.figure(picture.name, kind)) as file:
                file.write(content)


def write_report(place: RunsDir, text: str, pictures: Sequence[Picture] = ()) -> None:
    """Write report.md with the ``text``, report.html and figures/."""
    place.root.mkdir(parents=True, exist_ok=True)
    write_pictures(place, pictures)
    atomic_write_text(place.report_md, text)
    atomic_write_text(place.report_html, to_html(text, pictures))


# --- the report on a sweep: value × mean ± interval


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
        keys.difference_update(PLACE_KEYS)
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
        TEMPLATES / "values.md.j2",
        title=root.resolve().name,
        keys=sorted({key for point in points for key in point.values}),
        metrics=sorted({Comparison((point.row,)).metric for point in points}),
        points=points,
    )
    place = RunsDir(output or root)
    write_report(place, text)
    return place
