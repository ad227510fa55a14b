"""Render the templates of pages. Python computes the numbers and the tables, and the templates hold the words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mgexp.results.html import Picture
from mgexp.results.tables import with_brackets

TEMPLATES = Path(__file__).parent / "templates"


def section(heading: str, caller: Callable[[], str]) -> str:
    """Write a section around the contents of a call block. Without contents there is no section."""
    body = _without_gaps(caller())
    return "\n".join([f"## {heading}", "", *with_brackets(body.splitlines()), ""]) if body else ""


def _without_gaps(text: str) -> str:
    """Leave one empty line where a part that is empty would leave several."""
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def render_page(template: str, **values: object) -> str:
    """Render a file of ``TEMPLATES`` as Markdown. A list of lines is written with the filter ``lines``."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["section"] = section
    environment.filters["lines"] = "\n".join
    return _without_gaps(environment.get_template(template).render(values)) + "\n"


def figures_of(pictures: Sequence[Picture]) -> Mapping[str, str]:
    """Return the Markdown of each figure by name, and "" for a figure that was not drawn."""
    return defaultdict(str, {one.name: "\n".join(one.markdown) for one in pictures})
