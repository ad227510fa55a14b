"""SlowFast on 8, 64 and 128 GPUs: the numbers of benchmarks/README.md, and what they rest on."""

import re
from pathlib import Path

import pytest
from kinetics_in_15_minutes import value
from paper_clusters import LINKS, TODAY, main, seconds

from mgexp.multigrid.recipe import Multigrid

ROOT = Path(__file__).parents[2]


def test_what_the_backward_pass_hides_costs_only_its_last_message():
    """138 MB in fp32 are five messages of 25 MB and one of 6.9 MB, which crosses 16 nodes by a tree or a ring."""
    fast, slow = (seconds(Multigrid(), 128, TODAY, rate, 1.0) for rate in (1e18, LINKS["10 Gb/s"]))
    steps = 239 * value("videos") / (8 * 128)
    exposed = (slow - fast) / steps
    last = (4 * value("slowfast_params")) % (25 * 2**20)
    assert exposed == pytest.approx(2 * last / 1.25e9, rel=0.05)


def test_the_page_has_the_numbers_of_the_study(capsys):
    assert main([]) == 0
    text, page = capsys.readouterr().out, (ROOT / "benchmarks/README.md").read_text("utf-8")
    section = page.split("## SlowFast on 8, 64 and 128 GPUs")[1].split("\n## ")[0]
    hours = re.findall(r"\d+ h \d\d min|\d+ min \d\d s", text.split("Published")[0])
    assert hours == re.findall(r"\d+ h \d\d min|\d+ min \d\d s", section)
    percents = [one for one in re.findall(r"\(([+-][\d.]+ %)\)", text) if one != "+0.0 %"]
    assert percents == [one.replace("−", "-") for one in re.findall(r"\| ([+−][\d.]+ %)", section)]
