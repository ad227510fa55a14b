"""Turn a report in Markdown into one HTML page that contains its figures, loads nothing and runs no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

from markdown import Markdown

STYLE = Path(__file__).parent / "assets" / "page.css"
RAW_OR_LINK = ("html", "link", "reference", "short_reference", "autolink", "automail")
"""Markdown that a report never uses. `to_html` switches it off, so names of rows and classes stay plain text."""

PLAIN_IN_SOURCE = ' "<>=:/;,()+*'
"""What an address of data in '' may contain as it is. Everything else but letters, digits, _ . - ~ is escaped."""

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


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
    def markdown(self) -> list[str]:
        """The lines that show it in the Markdown of a report, and an empty line."""
        return [f"![{self.alt}]({self.link})", "", f"*{self.caption}*", ""]

    @property
    def html(self) -> str:
        """The HTML element that contains the figure itself."""
        # Base64 would take a third more. The attribute stands in ', so that " needs no escape.
        source = f"data:image/svg+xml,{quote(self.svg, safe=PLAIN_IN_SOURCE)}"
        return (
            f"""<span class="scroll figure"><img alt="{escape(self.alt)}" src='{source}'></span>"""
        )


def to_html(text: str, pictures: Sequence[Picture], gallery: str = "", heading: str = "") -> str:
    """Turn the report in Markdown into a page. The HTML of the ``gallery`` follows the ``heading``."""
    converter = Markdown(extensions=["tables", "sane_lists", "fenced_code"])
    # Markdown keeps HTML as it is. The name of a class comes from a user's file and could contain a script.
    converter.preprocessors.deregister("html_block")
    for name in RAW_OR_LINK:
        converter.inlinePatterns.deregister(name)
    body = converter.convert(text)
    # The Markdown file links to the PNG of a figure. Here the SVG itself replaces the link, so the page is one
    # file.
    for one in pictures:
        body = body.replace(f'<img alt="{escape(one.alt)}" src="{escape(one.link)}" />', one.html)
    place = f"<h2>{escape(heading)}</h2>"
    body = body.replace(place, f"{place}\n{gallery}", 1)
    body = body.replace("<table>", '<div class="scroll"><table>')
    body = body.replace("</table>", "</table></div>")
    title = escape(text.splitlines()[0].removeprefix("# "))
    return PAGE.format(title=title, style=STYLE.read_text(encoding="utf-8"), body=body)
