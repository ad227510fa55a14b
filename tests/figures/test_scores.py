"""Figures of scores: curves and ends, points and intervals by hand, and that a loss is seen."""

import math
from dataclasses import replace

import pytest
from samples import comparison, run

from mgexp.figures.scores import (
    draw_accuracy,
    draw_equal_flops,
    draw_gains,
    draw_speed_up,
)
from mgexp.figures.style import arms
from mgexp.results.comparison import Pair, Row, estimate_mean

# --- accuracy over FLOPs, steps and seconds

CURVE = ((100, 20.0, 40.0), (300, 70.0, 95.0))


def curve(axes):
    return [tuple(line.get_xdata()) for line in axes.get_lines() if len(line.get_xdata()) > 1]


def test_curves_over_flops_steps_and_seconds():
    """The final evaluation, of other videos, is no part of a curve."""
    flops, steps, seconds = draw_accuracy(comparison(run("long_short", curve=CURVE))).axes[3:]
    assert curve(flops) == [(1.0, 3.0)]
    assert curve(steps) == [(100, 300)]
    assert curve(seconds) == [(20.0, 70.0)]


def test_an_early_run_has_no_place_on_the_axis_of_seconds():
    early = replace(run("baseline", 0, top1=60.0, curve=CURVE), is_untimed=True)
    late = run("baseline", 1, top1=80.0, curve=CURVE, seconds=90.0)
    _, steps, seconds = draw_accuracy(comparison(early, late)).axes[3:]
    assert (len(curve(steps)), len(curve(seconds))) == (2, 1)
    # The mean of both scores stands above the seconds of the run that has them.
    ends = draw_accuracy(comparison(early, late)).axes[2]
    assert next(line.get_xydata()[0].tolist() for line in ends.get_lines()) == [90.0, 70.0]
    of_long = replace(run("long", 0, top1=60.0, curve=CURVE), is_untimed=True)
    alone = draw_accuracy(comparison(of_long, late))
    assert len(alone.axes) == 4


def test_the_mean_of_three_seeds_has_its_interval():
    runs = [run("baseline", seed, top1=top1) for seed, top1 in enumerate((96.0, 97.0, 98.0))]
    ends = draw_accuracy(comparison(*runs)).axes[0]
    (bar,) = ends.containers
    (segment,) = bar.lines[2][0].get_segments()
    # Mean 97, standard deviation 1, error 1/√3, times 4.303 for 2 degrees of freedom.
    assert list(segment[:, 1]) == pytest.approx([97 - 2.4843, 97 + 2.4843], abs=1e-3)


def test_no_arm_of_an_interval_is_less_than_0():
    """Rounding puts a mean beside equal ends, and Matplotlib refuses a negative length."""
    assert arms(1.0 - 2**-53, (1.0, 1.0)) == [[0.0], [2**-53]]
    assert arms(1.0 + 2**-52, (1.0, 1.0)) == [[2**-52], [0.0]]


# --- speed-up against accuracy


def bars(axes):
    """(center, x bar, y bar) of the point with intervals."""
    (container,) = axes.containers
    center, _, lines = container.lines
    across, upright = (one.get_segments()[0] for one in lines)
    return (center.get_xdata()[0], center.get_ydata()[0]), across[:, 0], upright[:, 1]


def test_a_point_is_the_geometric_mean_ratio_and_the_mean_difference():
    """Ratios of 2 and 8, differences of −1 and −3."""
    runs = [run("baseline", seed, top1=97.0, seconds=160.0, flops=4e12) for seed in (0, 1)]
    for seed, seconds, top1 in ((0, 80.0, 96.0), (1, 20.0, 94.0)):
        runs.append(run("long_short", seed, top1=top1, seconds=seconds, flops=1e12))
    figure = draw_speed_up(comparison(*runs))
    center, across, upright = bars(figure.axes[0])
    assert center == pytest.approx((4.0, -2.0))
    # Logarithms ln 2 and ln 8: mean ln 4, error ln 2, times 12.706 for 1 degree of freedom.
    wide = 12.706 * math.log(2)
    assert across == pytest.approx([4 * math.exp(-wide), 4 * math.exp(wide)])
    # Mean −2, error 1.
    assert upright == pytest.approx([-14.706, 10.706])
    lines = figure.axes[0].get_lines()
    (seeds,) = [one for one in lines if len(one.get_xdata()) == 2 and one.get_marker() == "o"]
    assert (list(seeds.get_xdata()), list(seeds.get_ydata())) == ([2.0, 8.0], [-1.0, -3.0])
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["baseline", "long + short: 4.00× (FLOPs 4.00×), −2.00 points"]


def test_a_study_shows_its_margin_and_the_seeds_whose_seconds_count():
    """Three seeds with −1, −2 and −3 points; the seconds of the second were disturbed."""
    base = [run("baseline", seed, top1=90.0, seconds=160.0) for seed in range(3)]
    own = [
        run("long_short", seed, top1=89.0 - seed, seconds=seconds)
        for seed, seconds in enumerate((80.0, 7.0, 20.0))
    ]
    own[1] = replace(own[1], is_untimed=True)
    runs = comparison(*base, *own)
    untimed = [replace(each, row="long", is_untimed=True) for each in own]
    pairs = [
        runs.pair(runs.row("long_short")),
        Pair(Row("long", dict(enumerate(untimed))), runs.baseline),
    ]
    left, right = draw_speed_up(runs, pairs, margin=1.5).axes
    assert [len(left.containers), len(right.containers)] == [1, 2]
    center, _, upright = bars(left)
    assert center == pytest.approx((4.0, -2.0))
    assert upright == pytest.approx(estimate_mean([-1.0, -2.0, -3.0]).interval)
    (seeds,) = [line for line in left.get_lines() if list(line.get_xdata()) == [2.0, 8.0]]
    assert list(seeds.get_ydata()) == [-1.0, -3.0]
    for axes in (left, right):
        (dashed,) = [line for line in axes.get_lines() if line.get_linestyle() == "--"]
        assert list(dashed.get_ydata()) == [-1.5, -1.5]


# --- gains of many rows


def test_rows_stand_below_what_they_are_compared_with_the_best_first():
    """Pairs of two seeds: the points that they gain, and their saving of FLOPs."""
    pairs = []
    for name, base, points, flops in (
        ("long", "baseline", (0.0, 1.0), 1.5),
        ("paper", "baseline", (-70.0, -74.0), 3.0),
        ("worse", "long", (-3.0, -5.0), 2.0),
        ("better", "long", (1.0, 2.0), 0.75),
    ):
        bases = {seed: run(base, seed, top1=80.0, flops=6e12) for seed in (0, 1)}
        own = {
            seed: run(name, seed, top1=80.0 + gained, flops=6e12 / flops)
            for seed, gained in enumerate(points)
        }
        pairs.append(Pair(Row(name, own), Row(base, bases)))
    (axes,) = draw_gains(pairs, margin=1.5).axes
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert names == ["against baseline", "long", "paper", "against long", "better", "worse"]
    centers = [bar.lines[0].get_xydata()[0].tolist() for bar in axes.containers]
    assert centers == [[0.5, -1.0], [1.5, -4.0], [-4.0, -5.0]]
    written = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert written == {"1.50×": -1, "3.00×": -2, "◀ −72.00": -2, "0.75×": -4, "2.00×": -5}


def test_curves_of_many_rows_are_means_of_their_seeds():
    """The second seed has two evaluations, and so has the mean."""
    curves = (
        ((200, 20.0, 50.0), (400, 40.0, 60.0), (800, 80.0, 80.0)),
        ((200, 60.0, 60.0), (400, 70.0, 70.0)),
    )

    def steps_of(num_rows):
        names = ["baseline", *(f"row_{number}" for number in range(1, num_rows))]
        runs = [
            run(name, seed, curve=curve, top1=90.0 + seed)
            for name in names
            for seed, curve in enumerate(curves)
        ]
        return draw_accuracy(comparison(*runs)).axes[4]

    few, many = steps_of(1), steps_of(9)
    assert curve(few) == [(200, 400, 800), (200, 400)]
    lines = [line.get_xydata().tolist() for line in many.get_lines()]
    assert sorted(lines) == [[[200.0, 55.0], [400.0, 65.0]]] * 9 + [[[1000.0, 90.5]]] * 9


# --- at equal FLOPs


def test_baselines_are_joined_from_the_shortest_to_the_whole_one_and_gains_are_differences():
    """Two seeds of long+short and its baseline. Long has no baseline with as many FLOPs."""
    runs = [run("baseline", seed, top1=98.0, flops=4e12) for seed in (0, 1)]
    runs += [run("long_short", seed, top1=96.0 + seed, flops=1e12) for seed in (0, 1)]
    runs += [run("long", seed, top1=97.0, flops=2e12) for seed in (0, 1)]
    of_budget = [run("as_long_short", seed, top1=90.0 - seed, flops=1e12) for seed in (0, 1)]
    shorter = (Row("as_long_short", dict(enumerate(of_budget)), {}),)
    scores, gains = draw_equal_flops(replace(comparison(*runs), shorter=shorter)).axes
    line, *_ = scores.get_lines()
    assert [*zip(*line.get_data(), strict=True)] == [(1.0, 89.5), (4.0, 98.0)]
    # A gain is the mean difference of equal seeds, with its interval.
    (container,) = gains.containers
    center, _, (bar,) = container.lines
    assert (*center.get_xdata(), *center.get_ydata()) == (7.0, 0.0)  # the mean of 6 and 8
    (across,) = bar.get_segments()
    assert across[:, 0] == pytest.approx([7 - 12.706, 7 + 12.706])
    (seeds,) = (line for line in gains.get_lines() if line.get_markersize() == 3)
    assert [*seeds.get_xdata()] == [6.0, 8.0]
    assert [tick.get_text() for tick in gains.get_yticklabels()] == ["long + short"]
