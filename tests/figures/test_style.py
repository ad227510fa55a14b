"""Widths, colours and files of every figure."""

import io
from xml.etree import ElementTree

from PIL import Image

from mgexp.figures.style import PrintFigure, printed


def test_an_svg_has_its_words_as_text_and_is_the_same_each_time():
    with printed():
        made = PrintFigure(2.0)
        made.subplots().set_title("it's <b> & v1.12345")
    svg = made.file("svg").decode()
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    assert "it's <b> & v1.12345" in [one.text for one in texts]
    assert (
        made.file("svg").decode() == svg == made._repr_svg_()
    )  # the same picture is the same file
    assert Image.open(io.BytesIO(made.file("png"))).size == (1375, 400)  # 200 dots per inch
