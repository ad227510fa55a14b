"""Tables of timings that are written by hand."""

import pytest
from tiny import tiny_config

from mgexp.plan.loading import LoadingCosts, Timings, kinds_of, legs_of
from mgexp.plan.tables import clip_table, way_table
from mgexp.train.setup import build_row_schedule

SECONDS = {"videos": (0.3, 0.5, 0.4), "store": (0.05, 0.1, 0.08)}


@pytest.fixture
def costs(tmp_path):
    legs = legs_of(build_row_schedule(tiny_config(tmp_path), 24))
    kinds = kinds_of(legs)
    ways = {way: Timings(dict.fromkeys(kinds, values)) for way, values in SECONDS.items()}
    return LoadingCosts(legs, ways)


def cells(table):
    return [line.split() for line in table.splitlines()]


def test_ratios_are_of_the_same_repeat(costs):
    assert costs.ms_per_clip("store") == pytest.approx([50, 100, 80])
    assert costs.times_less("store") == pytest.approx([6, 5, 5])
    assert costs.times_less("videos") == [1, 1, 1]


def test_a_line_per_leg_with_medians(costs):
    lines = cells(clip_table(costs))
    assert len(lines) == 2 + len(costs.legs)
    assert all(line[-2:] == ["400.00", "80.00"] for line in lines[2:])


def test_a_line_per_way_with_spread(costs):
    line = way_table(costs).splitlines()[2]
    assert line.startswith("store")
    assert "80.00 (50.00–100.00)" in line
    assert "5.0 (5.0–6.0)" in line
