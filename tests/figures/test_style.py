"""Widths, colours and files of every figure."""

import io
import re
from xml.etree import ElementTree

import matplotlib.image
from PIL import Image

from mgexp.figures.style import COLOURS, PrintFigure, printed, row_styles


def figure():
    with printed():
        made = PrintFigure(2.0)
        made.subplots().plot([0, 1])
    return made


def test_a_png_has_200_dots_per_inch():
    file = figure().file("png")
    assert Image.open(io.BytesIO(file)).mode == "P"
    picture = matplotlib.image.imread(io.BytesIO(file))
    assert picture.shape[:2] == (400, 1375)


def test_the_same_picture_is_the_same_file():
    first, second = figure().file("svg"), figure().file("svg")
    assert first == second
    assert first.startswith(b"<?xml")


def test_notebooks_show_svg():
    assert "<svg" in figure()._repr_svg_()


def test_an_svg_has_its_words_as_text_and_short_numbers():
    with printed():
        made = PrintFigure(2.0)
        made.subplots().set_title("it's <b> & v1.12345")
    svg = made.file("svg").decode()
    words = [
        one.text for one in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert "it's <b> & v1.12345" in words
    assert re.findall(r"\d\.\d{3,}", re.sub(r"v1\.12345", "", svg)) == []
    assert re.findall(r"^ | $", svg, re.MULTILINE) == []


def test_the_rows_of_the_paper_keep_their_colours_beside_others():
    found = row_styles(["baseline", "mine", "long_short", "yours"])
    assert {name: found[name].colour for name in COLOURS} == COLOURS
    assert len({found[name] for name in ("baseline", "mine", "long_short", "yours")}) == 4
