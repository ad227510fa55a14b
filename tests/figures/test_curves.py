"""The curves of report.html as data: which points each line has, on each axis."""

from __future__ import annotations

import re

import simplejson
from fake_runs import fake_run, unfinished_run

from mgexp.figures.curves import curves_block
from mgexp.results.load import load_runs


def data_of(block):
    """The data that the script of the page draws."""
    (text,) = re.findall(r'<script type="application/json">(.*?)</script>', block.html)
    return simplejson.loads(text)


def test_a_line_goes_through_all_evaluations_and_ends_at_the_final_one(tmp_path):
    fake_run(
        tmp_path, "long", 3, top1=90.0, train_seconds=100.0, curve=((25.0, 40.0), (50.0, 70.0))
    )
    data = data_of(curves_block(load_runs(tmp_path), ()))
    (line,) = data["lines"]
    assert (line["label"], line["seed"], line["y"]) == ("long", 3, [40.0, 70.0, 90.0])
    # The fake evaluations are at steps 0 and 1, and the run takes 1,000 steps and 100 seconds.
    assert dict(zip(data["axes"], line["x"], strict=True)) == {
        "training steps": [0, 1, 1000],
        "training time (seconds)": [25.0, 50.0, 100.0],
    }


def test_a_name_cannot_end_the_script(tmp_path):
    fake_run(tmp_path, "a<b>", curve=((25.0, 40.0),))
    block = curves_block(load_runs(tmp_path), ())
    assert data_of(block)["lines"][0]["label"] == "a<b>"
    assert "<b>" not in block.html
    assert 'data-row="a&lt;b&gt;"' in block.html


def test_without_a_finished_run_there_are_no_curves(tmp_path):
    unfinished_run(tmp_path, "long")
    assert curves_block(load_runs(tmp_path), ()) is None
