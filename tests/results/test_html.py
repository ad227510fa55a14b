"""The page of a report in a real browser: tables that sort, curves with values, dark, a telephone."""

from __future__ import annotations

import re

import pytest
from browser import dom, needs_browser, screenshot
from fake_runs import fake_run
from PIL import Image

from mgexp.figures.curves import curves_block
from mgexp.figures.style import PrintFigure, printed
from mgexp.results.html import Picture, to_html
from mgexp.results.load import load_runs
from mgexp.results.report import render

SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="600" height="200"></svg>'
pytestmark = [needs_browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report of three rows with curves."""
    folder = tmp_path_factory.mktemp("report")
    for row, top1, seconds in (
        ("baseline", 97.0, 200.0),
        ("long", 9.5, 80.0),
        ("short", 95.0, 90.0),
    ):
        curve = ((seconds / 4, top1 / 2), (seconds / 2, 0.8 * top1))
        fake_run(folder, row, 0, top1=top1, train_seconds=seconds, curve=curve)
    return write_report(folder)


def write_report(folder):
    """Write a report of the runs of a folder, with curves."""
    comparison = load_runs(folder)
    figure = Picture("accuracy", "a figure", "Words.", b"", SVG)
    text = render("runs", comparison, [figure])
    page = folder / "report.html"
    page.write_text(to_html(text, [figure], [curves_block(comparison, ())]), encoding="utf-8")
    return page


def said(html):
    """What a script wrote into the title."""
    return re.search(r"<title>(.*?)</title>", html)[1]


def test_the_script_of_the_page_runs_under_its_own_policy(report, tmp_path):
    html = dom(report, tmp_path)
    assert 'class="sorts"' in html
    assert "<canvas" in html


def test_a_figure_with_words_of_every_kind_is_shown(tmp_path):
    with printed():
        figure = PrintFigure(2.0)
        figure.subplots().set_title('it\'s <b> & 100 % #1 "two" × 舞')
    one = Picture("accuracy", "a figure", "Words.", b"", figure.file("svg"))
    page = tmp_path / "report.html"
    text = f"# runs\n\n![{one.alt}]({one.link})\n"
    page.write_text(to_html(text, [one]), encoding="utf-8")
    script = "document.title = document.querySelector('.figure img').naturalWidth;"
    assert said(dom(page, tmp_path, script)) == "660"


def test_a_click_sorts_by_number_and_a_second_one_turns_the_order(report, tmp_path):
    script = """
        const column = [...document.querySelectorAll("th")].find((one) => one.textContent === "top-1 (%)");
        const names = () => [...column.closest("table").tBodies[0].rows].map((row) => row.cells[0].textContent);
        const read = [names()];
        for (let turn = 0; turn < 2; turn++) { column.click(); read.push(names()); }
        document.title = read.map((one) => one.join(" ")).join("; ");
    """
    # As text, 9.50 would come after 95.00.
    expected = "baseline short long; long short baseline; baseline short long"
    assert said(dom(report, tmp_path, script)) == expected


def test_a_curve_tells_the_value_under_the_cursor(report, tmp_path):
    script = """
        const over = document.querySelector(".u-over"), box = over.getBoundingClientRect();
        const found = new Set();
        for (let x = 0; x < box.width; x += 6) for (let y = 0; y < box.height; y += 6) {
            const at = { clientX: box.left + x, clientY: box.top + y, bubbles: true };
            over.dispatchEvent(new MouseEvent("mousemove", at));
            found.add(document.querySelector(".values").textContent);
        }
        document.title = [...found].join("; ");
    """
    values = said(dom(report, tmp_path, script)).split("; ")
    assert "baseline, seed 0: 48.50 % at 50 (training time (seconds))" in values
    assert "long, seed 0: 9.50 % at 80 (training time (seconds)), the final evaluation" in values


def test_half_a_point_does_not_fill_the_axis_of_the_curves(tmp_path):
    for row, top1 in (("baseline", 97.5), ("long", 97.0)):
        fake_run(tmp_path, row, 0, top1=top1, curve=((50.0, top1),))
    page = write_report(tmp_path)
    script = """
        const over = document.querySelector(".u-over"), box = over.getBoundingClientRect();
        const found = {};
        for (let x = 0; x < box.width; x += 6) for (let y = 0; y < box.height; y += 2) {
            const at = { clientX: box.left + x, clientY: box.top + y, bubbles: true };
            over.dispatchEvent(new MouseEvent("mousemove", at));
            const name = document.querySelector(".values").textContent.split(",")[0];
            (found[name] ??= []).push(y);
        }
        const middle = (ys) => (Math.min(...ys) + Math.max(...ys)) / 2;
        document.title = (middle(found.long) - middle(found.baseline)) / box.height;
    """
    # Half a point on an axis of 5 points and some room.
    assert 0.02 < float(said(dom(page, tmp_path, script))) < 0.2


def test_a_row_can_be_hidden(report, tmp_path):
    script = """
        document.querySelector('input[data-row="long"]').click();
        document.title = document.querySelectorAll("canvas").length;
    """
    assert said(dom(report, tmp_path, script)) == "1"


def test_a_telephone_scrolls_tables_and_not_the_page_and_says_so(report, tmp_path):
    script = """
        const page = document.documentElement;
        const hints = [...document.querySelectorAll(".hint")].filter((one) => one.offsetHeight > 0);
        document.title = `${page.scrollWidth <= page.clientWidth} ${hints.length > 0}`;
    """
    assert said(dom(report, tmp_path, script, width=390)) == "true true"


@pytest.mark.parametrize(
    ("options", "is_dark"), [((), False), (("--blink-settings=preferredColorScheme=0",), True)]
)
def test_the_page_follows_the_colour_scheme(report, tmp_path, options, is_dark):
    screenshot(report, tmp_path / "page.png", tmp_path, *options)
    with Image.open(tmp_path / "page.png") as image:
        corner = image.convert("L").getpixel((4, 4))
    assert (corner < 60) == is_dark
