"""Turn Markdown into a page of HTML that loads nothing, with figures, curves and tables that sort."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from urllib.parse import quote

from markdown import Markdown

ASSETS = Path(__file__).parent / "assets"
"""The style and the script of a page, and uPlot 1.6.32, which draws curves (MIT, github.com/leeoniya/uPlot)."""
RAW_OR_LINK = ("html", "link", "reference", "short_reference", "autolink", "automail")
"""Markdown that a report never uses. `to_html` switches it off, so names of rows and classes stay plain text."""

PLAIN_IN_SOURCE = ' "<>=:/;,()+*'
"""What an address of data in '' may contain as it is. Everything else but letters, digits, _ . - ~ is escaped."""

# The hash allows the page's own script. No other script runs, so a page can be sent by mail and opened anywhere.
PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src {images}; style-src 'unsafe-inline'; script-src 'sha256-{digest}'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
<script>{script}</script>
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


@dataclass(frozen=True)
class Block:
    """Something that only HTML can show, such as curves. It comes first in the section with that heading."""

    heading: str
    html: str


def to_html(text: str, pictures: Sequence[Picture], blocks: Sequence[Block] = ()) -> str:
    """Turn the report in Markdown into a page that contains its pictures and ``blocks``."""
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
    for block in blocks:
        heading = f"<h2>{escape(block.heading)}</h2>"
        body = body.replace(heading, f"{heading}\n{block.html}", 1)
    return page(text.splitlines()[0].removeprefix("# "), body, "data:")


def page(title: str, body: str, images: str) -> str:
    """Make a whole page of HTML. ``images`` says where its images may come from, for its security policy."""
    body = body.replace("<table>", '<div class="scroll"><table>')
    body = body.replace("</table>", "</table></div>")
    has_curves = '<div class="curves">' in body
    # Script text that is the same in each page has the same hash.
    script = (asset("uPlot.iife.min.js") if has_curves else "") + asset("page.js")
    style = (asset("uPlot.min.css") + "\n" if has_curves else "") + asset("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return PAGE.format(
        images=images, digest=digest, title=escape(title), style=style, body=body, script=script
    )


@cache
def asset(name: str) -> str:
    """Read a file of ``ASSETS``."""
    return (ASSETS / name).read_text(encoding="utf-8")
