"""Write a report as Markdown and as one HTML file with its figures inside."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from markdown import Markdown

from mgexp.run.files import atomic_file, atomic_write_text
from mgexp.run.folder import RunsDir

ASSETS = Path(__file__).parent / "assets"
RAW_OR_LINK = ("html", "link", "reference", "short_reference", "autolink", "automail")
"""Markdown that a report never uses. `to_html` switches it off, so names of rows and classes stay plain text."""


@dataclass(frozen=True)
class Picture:
    """A figure as the bytes of its files.

    `caption` is the text below it. `alt` replaces the figure for readers who cannot see it.
    """

    name: str
    alt: str
    caption: str
    png: bytes
    svg: bytes

    @property
    def link(self) -> str:
        """The path of the PNG file in the folder of the report."""
        return f"figures/{self.name}.png"

    @property
    def markdown(self) -> str:
        return f"![{self.alt}]({self.link})\n\n*{self.caption}*"


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
