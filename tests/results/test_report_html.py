"""The page of a report needs nothing but itself, and runs nothing."""

import base64
import re

import pytest

from mgexp.results.report import InlinePicture, to_html

PICTURE = InlinePicture(
    "top-1 & more", "figures/accuracy.png", b"<svg>wide</svg>", b"<svg>narrow</svg>"
)
TEXT = f"""\
# runs

{PICTURE.markdown}

- **long**: speed-up 2×.

| row | top-1 |
| :-- | --: |
| long | 97 |
"""


@pytest.fixture(scope="module")
def page():
    return to_html(TEXT, [PICTURE])


def test_the_table_is_one(page):
    assert "<table>" in page
    assert re.search(r'<td style="text-align: right;">97</td>', page)
    assert page.count('<div class="scroll"><table>') == page.count("</table></div>") == 1


def test_both_widths_of_a_picture_are_inside(page):
    wide, narrow = (base64.b64encode(one).decode() for one in (PICTURE.wide, PICTURE.narrow))
    assert (
        f'<source media="(max-width: 640px)" srcset="data:image/svg+xml;base64,{narrow}">' in page
    )
    assert f'<img alt="top-1 &amp; more" src="data:image/svg+xml;base64,{wide}">' in page


def test_nothing_is_loaded_and_nothing_runs(page):
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in page
    assert re.findall(r'(?:src|srcset|href)="(?!data:)[^"]*"', page) == []
    assert "<script" not in page


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "<b>bold</b>", "[a](javascript:alert(1))", "<http://a.b>"]
)
def test_names_stay_text(name):
    page = to_html(f"# runs\n\n- {name}: not run.\n\n{name}\n", [])
    assert not re.search(r"<(script|b|a)\b", page.split("<body>")[1])


def test_the_title_is_that_of_the_report(page):
    assert "<title>runs</title>" in page
