"""Rows against shorter baselines: points and intervals by hand."""

from dataclasses import replace

import pytest
from samples import comparison, outside, overlaps, quickstart, run

from mgexp.figures.equal_flops import draw_equal_flops
from mgexp.results.model import Comparison, Row


def shorter(row: str, scores: dict[int, float], flops: float) -> Row:
    runs = {s: run(f"as_{row}", s, top1=score, flops=flops) for s, score in scores.items()}
    return Row(f"as_{row}", runs, {})


@pytest.fixture
def two_seeds() -> Comparison:
    """Of long+short; long has none of as many FLOPs."""
    runs = [run("baseline", seed, top1=98.0, flops=4e12) for seed in (0, 1)]
    runs += [run("long_short", seed, top1=96.0 + seed, flops=1e12) for seed in (0, 1)]
    runs += [run("long", seed, top1=97.0, flops=2e12) for seed in (0, 1)]
    of_budget = (shorter("long_short", {0: 90.0, 1: 89.0}, 1e12),)
    return replace(comparison(*runs), shorter=of_budget)


def test_baselines_are_joined_from_the_shortest_to_the_whole_one(two_seeds):
    scores = draw_equal_flops(two_seeds).axes[0]
    line, *_ = scores.get_lines()
    assert [*zip(*line.get_data(), strict=True)] == [(1.0, 89.5), (4.0, 98.0)]
    assert scores.get_xlabel() == "training FLOPs (10¹²)"


def test_a_gain_is_the_mean_difference_of_equal_seeds_with_its_interval(two_seeds):
    gains = draw_equal_flops(two_seeds).axes[1]
    (container,) = gains.containers
    center, _, (bar,) = container.lines
    assert (*center.get_xdata(), *center.get_ydata()) == (7.0, 0.0)  # of 6 and 8
    (across,) = bar.get_segments()
    assert across[:, 0] == pytest.approx([7 - 12.706, 7 + 12.706])
    (seeds,) = (line for line in gains.get_lines() if line.get_markersize() == 3)
    assert [*seeds.get_xdata()] == [6.0, 8.0]
    assert [tick.get_text() for tick in gains.get_yticklabels()] == ["long + short"]


def test_one_seed_is_hollow(two_seeds):
    few = replace(two_seeds, shorter=(shorter("long_short", {1: 89.0}, 1e12),))
    (container,) = draw_equal_flops(few).axes[1].containers
    assert container.lines[0].get_markerfacecolor() == "white"


@pytest.mark.parametrize("columns", [1, 2])
def test_no_words_hide_each_other_or_leave_the_figure(columns):
    of_budget = (
        shorter("long_short", {0: 88.0, 1: 82.5, 2: 78.83}, 5.757e12),
        shorter("long", {0: 94.67}, 9.03e12),
        shorter("short", {0: 97.0}, 1.265e13),
    )
    figure = draw_equal_flops(replace(quickstart(), shorter=of_budget), columns)
    assert overlaps(figure) == []
    assert outside(figure) == []
