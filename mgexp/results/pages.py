"""Write pages and reports: Markdown from the templates, figures, and one HTML file with everything inside.

Python computes the numbers. The templates hold the tables and the words.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mgexp.results import texts
from mgexp.results.evidence import judge_margin
from mgexp.results.html import Picture, to_html
from mgexp.run.files import atomic_file, atomic_write_text
from mgexp.run.folder import RunsDir
from mgexp.text import counted

TEMPLATES = Path(__file__).parent / "templates"

NUMBER = r"−?[\d,.]+×?"
BRACKETS = re.compile(rf"\| {NUMBER} \({NUMBER}(–| to ){NUMBER}\) ")
"""A cell with a number and its range over the seeds or its interval in brackets."""
IN_BRACKETS = {
    "–": "In brackets: the lowest and the highest of the seeds.",
    " to ": "In brackets: the 95 % interval over the seeds.",
}

FILTERS: Mapping[str, Callable[..., str]] = {
    "lines": "\n".join,
    "cell": texts.plain_cell,
    "counted": counted,
    "seeds": texts.seeds_cell,
    "timed_seeds": texts.timed_seeds,
    "mean": texts.mean_text,
    "deviation": texts.deviation_text,
    "half_width": texts.half_width_text,
    "ratio": texts.ratio_text,
    "share": texts.share_text,
    "estimate": texts.estimate_text,
    "signed": texts.points_text,
    "points": texts.difference_text,
    "interval": texts.interval_text,
    "times": texts.times_text,
    "test_interval": texts.test_interval_text,
    "verdict": texts.verdict,
    "judge": judge_margin,
    "number": lambda value, decimals=0: f"{value:,.{decimals}f}",
}
"""How the templates write a value: ``{{ pair.difference | points }}``."""


def section(heading: str, caller: Callable[[], str]) -> str:
    """Write a section around the contents of a call block. Without contents there is no section."""
    body = _without_gaps(caller())
    return "\n".join([f"## {heading}", "", *with_brackets(body.splitlines()), ""]) if body else ""


def with_brackets(lines: Sequence[str]) -> list[str]:
    """Say below the last table among ``lines`` what the brackets behind its numbers mean, if there are any."""
    brackets = next(filter(None, map(BRACKETS.search, lines)), None)
    end = max((n for n, line in enumerate(lines, start=1) if line.startswith("| ")), default=0)
    note = ["", IN_BRACKETS[brackets[1]]] if brackets else []
    return [*lines[:end], *note, *lines[end:]]


def _without_gaps(text: str) -> str:
    """Leave one empty line where a part that is empty would leave several."""
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def render_page(template: str, pictures: Sequence[Picture] = (), **values: object) -> str:
    """Render a file of ``TEMPLATES`` as Markdown. ``figures`` has the Markdown of each picture, or else ""."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["section"] = section
    environment.filters.update(FILTERS)
    figures = defaultdict(str, {picture.name: picture.markdown for picture in pictures})
    text = environment.get_template(template).render(values, figures=figures)
    return _without_gaps(text) + "\n"


def split_prose(prose: str) -> tuple[str, str, str]:
    """Split what people wrote into the line of the title ("" without one), the opening, and the sections."""
    before, *sections = re.split(r"^(?=## )", prose, flags=re.MULTILINE)
    title, _, opening = before.partition("\n")
    if not title.startswith("# "):
        title, opening = "", before
    return title, opening.strip(), "\n\n".join(section.strip() for section in sections)


def write_pictures(folder: RunsDir, pictures: Sequence[Picture]) -> None:
    """Write the files of figures."""
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
