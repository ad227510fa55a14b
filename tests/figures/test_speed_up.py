"""Speed-up against accuracy: points and intervals by hand, and that a loss is seen."""

import math
from itertools import permutations

import pytest
from matplotlib.text import Text
from samples import comparison, outside, overlaps, quickstart, run

from mgexp.figures.speed_up import draw_speed_up


@pytest.fixture
def two_seeds():
    """Ratios of 2 and 8, differences of −1 and −3."""
    runs = [run("baseline", seed, top1=97.0, seconds=160.0, flops=4e12) for seed in (0, 1)]
    for seed, seconds, top1 in ((0, 80.0, 96.0), (1, 20.0, 94.0)):
        runs.append(run("long_short", seed, top1=top1, seconds=seconds, flops=1e12))
    return draw_speed_up(comparison(*runs))


def bars(axes):
    """(center, x bar, y bar) of the point with intervals."""
    (container,) = axes.containers
    center, _, lines = container.lines
    across, upright = (one.get_segments()[0] for one in lines)
    return (center.get_xdata()[0], center.get_ydata()[0]), across[:, 0], upright[:, 1]


def test_a_point_is_the_geometric_mean_ratio_and_the_mean_difference(two_seeds):
    center, across, upright = bars(two_seeds.axes[0])
    assert center == pytest.approx((4.0, -2.0))
    # Logarithms ln 2 and ln 8: mean ln 4, error ln 2, times 12.706 for 1 degree of freedom.
    wide = 12.706 * math.log(2)
    assert across == pytest.approx([4 * math.exp(-wide), 4 * math.exp(wide)])
    # Mean −2, error 1.
    assert upright == pytest.approx([-14.706, 10.706])


def test_flops_are_beside_it(two_seeds):
    center, across, _ = bars(two_seeds.axes[1])
    assert center == pytest.approx((4.0, -2.0))
    assert across == pytest.approx([4.0, 4.0])


def test_seeds_are_small_points(two_seeds):
    seeds = next(line for line in two_seeds.axes[0].get_lines() if len(line.get_xdata()) == 2
                 and line.get_marker() == "o")  # fmt: skip
    assert list(seeds.get_xdata()) == [2.0, 8.0]
    assert list(seeds.get_ydata()) == [-1.0, -3.0]


def test_points_stay_readable_beside_a_huge_interval(two_seeds):
    low, high = two_seeds.axes[0].get_xlim()
    assert -12 < low < 1
    assert 8 < high < 20  # and not 4 · exp(8.8) = 26,000
    low, high = two_seeds.axes[0].get_ylim()
    assert -9 < low < -3  # and not −14.7
    assert 0 < high < 6  # and not 10.7


def test_what_is_lost_is_tinted_and_in_the_frame():
    runs = [run("baseline", top1=97.0), run("long", top1=60.0, seconds=50.0)]
    axes = draw_speed_up(comparison(*runs)).axes[0]
    (half,) = [patch for patch in axes.patches if patch.get_height() > 0]
    assert (half.get_y(), half.get_y() + half.get_height()) == (axes.get_ylim()[0], 0)
    assert axes.get_ylim()[0] < -37


def test_one_seed_is_hollow():
    runs = [run("baseline"), run("long", seconds=50.0)]
    (container,) = draw_speed_up(comparison(*runs)).axes[0].containers
    assert container.lines[0].get_markerfacecolor() == "white"


def test_a_row_without_a_baseline_of_its_seed_is_left_out():
    runs = [run("baseline", 0), run("long", 0, seconds=50.0), run("short", 1, seconds=50.0)]
    axes = draw_speed_up(comparison(*runs)).axes[0]
    assert len(axes.containers) == 1


@pytest.mark.parametrize("columns", [1, 2])
def test_no_words_hide_each_other_or_leave_the_figure(columns):
    figure = draw_speed_up(quickstart(), columns)
    assert overlaps(figure) == []
    assert outside(figure) == []


def test_names_of_many_rows_do_not_hide_each_other():
    runs = [run("baseline", seconds=200.0)]
    for number in range(10):
        at = {"top1": 96.0 + 0.2 * (number % 4), "seconds": 100.0 + 3 * number}
        runs.append(run(f"row {number}", **at, flops=5e12 + 1e11 * number))
    assert overlaps(draw_speed_up(comparison(*runs))) == []


@pytest.mark.parametrize("columns", [1, 2])
def test_no_line_to_a_name_crosses_another(columns):
    # A quickstart whose wide intervals leave little room: top-1 and seconds of three seeds.
    measured = {
        "baseline": (1.85e13, (97.75, 194.0), (98.0, 227.6), (98.25, 230.4)),
        "short": (1.27e13, (97.33, 179.1), (96.83, 173.4), (97.58, 164.6)),
        "long": (9.03e12, (97.58, 121.6), (98.33, 130.2), (98.17, 122.7)),
        "long_short": (5.76e12, (97.17, 96.9), (97.0, 98.8), (96.33, 99.4)),
    }
    runs = [
        run(row, seed, top1=top1, seconds=seconds, flops=flops)
        for row, (flops, *seeds) in measured.items()
        for seed, (top1, seconds) in enumerate(seeds)
    ]
    figure = draw_speed_up(comparison(*runs), columns)
    figure.draw_without_rendering()
    for axes in figure.axes:
        for name, other in permutations([one for one in axes.texts if one.get_text()], 2):
            if getattr(name, "arrow_patch", None):
                line = name.arrow_patch.get_path().transformed(name.arrow_patch.get_transform())
                words = Text.get_window_extent(other)
                assert not line.intersects_bbox(words, filled=False), (name, other)
