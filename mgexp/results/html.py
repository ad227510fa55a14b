"""Turn a report in Markdown into one HTML page that contains its figures, loads nothing and runs no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

from markdown import Markdown

ASSETS = Path(__file__).parent / "assets"
RAW_OR_LINK = ("html", "link", "reference", "short_reference", "autolink", "automail")
"""Markdown that a report never uses. `to_html` switches it off, so names of rows and classes stay plain text."""

PLAIN_IN_SOURCE = ' "<>=:/;,()+*'
"""What an address of data in '' may contain as it is. Everything else but letters, digits, _ . - ~ is escaped."""


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
        """The path of the PNG file, relative to the folder of the report."""
        return f"figures/{self.name}.png"

    @property
    def markdown(self) -> str:
        """The lines that show it in Markdown."""
        return f"![{self.alt}]({self.link})\n\n*{self.caption}*"

    @property
    def html(self) -> str:
        """The HTML element that contains the figure itself."""
        # Base64 would take a third more. The attribute stands in ', so that " needs no escape.
        source = f"data:image/svg+xml,{quote(self.svg, safe=PLAIN_IN_SOURCE)}"
        return (
            f"""<span class="scroll figure"><img alt="{escape(self.alt)}" src='{source}'></span>"""
        )


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
        image = f'<img alt="{escape(picture.alt)}" src="{escape(picture.link)}" />'
        body = body.replace(image, picture.html)
    body = body.replace("<table>", '<div class="scroll"><table>')
    body = body.replace("</table>", "</table></div>")
    title = escape(text.splitlines()[0].removeprefix("# "))
    page, style = (
        (ASSETS / name).read_text(encoding="utf-8") for name in ("page.html", "page.css")
    )
    return page.format(title=title, style=style, body=body)
