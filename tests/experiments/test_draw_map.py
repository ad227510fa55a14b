"""The map of lengths: its cells, and its table."""

import pytest
from draw_map import Cell, table
from fake_experiments import result

from mgexp.results.comparison import Pair, Row


def row(name, scores, **numbers):
    runs = [result(f"x/{name}", seed, score, **numbers) for seed, score in enumerate(scores)]
    return Row(name, {run.seed: run for run in runs})


@pytest.fixture
def cell():
    base = row("baseline", [80.0, 82.0, 81.0], steps=6000, train_flops=4e12)
    long = row("long", [80.5, 82.0, 81.0], steps=2000, train_flops=1e12)
    equal = row("as_long", [70.0, 72.0], steps=1500, train_flops=1e12)
    return Cell(3, 1.0, Pair(long, base), Pair(long, equal))


def test_a_line_has_the_differences_and_the_savings(cell):
    *_, line = table([cell])
    values = [value.strip() for value in line.strip("|").split("|")]
    assert values[:5] == ["3", "6,000", "long", "2,000", "3"]
    # Student's t for two degrees of freedom: 4.303 · 0.2887 / sqrt(3) is 0.717.
    assert values[5] == "+0.17 (−0.55 to +0.88)"
    assert (values[6], values[7]) == ("**holds**", "4.00×")
    assert values[9] == "+10.25 (+7.07 to +13.43)"
