"""A report as one HTML file: pictures inside, nothing from the network, for any width, light and dark."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from markdown import Markdown

RAW_OR_LINK = ("html", "link", "reference", "short_reference", "autolink", "automail")
"""What a report never holds by itself: names of rows and classes stay text, whatever they look like."""

# Figures are white cards in either scheme; the rest takes the colours of the reader's.
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
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 0 1rem 3rem; }}
h1 {{ font-size: 1.6rem; }}
h2 {{ font-size: 1.2rem; margin-top: 2.2rem; }}
img {{ background: white; border-radius: 6px; box-sizing: border-box; padding: 8px; width: 100%; }}
em {{ font-size: 0.85rem; opacity: 0.8; }}
li {{ overflow-wrap: anywhere; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }}
td, th {{ border-bottom: 1px solid #8886; padding: 0.25rem 0.6rem; white-space: nowrap; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""
NARROW = "(max-width: 640px)"
"""Screens on which a figure of two columns would have letters of less than 2 mm."""


@dataclass(frozen=True)
class InlinePicture:
    """A figure for two columns and for one, as SVG; `link` is where Markdown finds it, `alt` what it is."""

    alt: str
    link: str
    wide: bytes
    narrow: bytes

    @property
    def markdown(self) -> str:
        """The line that shows it in a report."""
        return f"![{self.alt}]({self.link})"

    @property
    def html(self) -> str:
        """The element that holds it whole."""
        wide, narrow = _data(self.wide), _data(self.narrow)
        source = f'<source media="{NARROW}" srcset="{narrow}">'
        return f'<picture>{source}<img alt="{escape(self.alt)}" src="{wide}"></picture>'


def to_html(text: str, pictures: Sequence[InlinePicture]) -> str:
    """The report in Markdown as a page, with its pictures in the place of their links."""
    converter = Markdown(extensions=["tables", "sane_lists"])
    converter.preprocessors.deregister("html_block")
    for name in RAW_OR_LINK:
        converter.inlinePatterns.deregister(name)
    body = converter.convert(text)
    for one in pictures:
        body = body.replace(f'<img alt="{escape(one.alt)}" src="{escape(one.link)}" />', one.html)
    body = body.replace("<table>", '<div class="scroll"><table>')
    body = body.replace("</table>", "</table></div>")
    title = text.splitlines()[0].removeprefix("# ")
    return PAGE.format(title=escape(title), body=body)


def _data(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
