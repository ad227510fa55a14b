"""Accuracy over FLOPs, steps and seconds: where the curves and the ends lie."""

import pytest
from samples import comparison, named, outside, overlaps, quickstart, row_schedule, run

from mgexp.figures.accuracy import draw_accuracy

ROW = row_schedule("long_short")
CURVE = ((100, 20.0, 40.0), (300, 70.0, 95.0))


def of_one_run(flops=ROW.work[1], steps=ROW.schedule.total_steps):
    """The lower panels of a run that counted so many FLOPs and steps."""
    one = run("long_short", flops=flops, steps=steps, curve=CURVE)
    return draw_accuracy(comparison(one), [ROW]).axes[3:]


def curve(axes):
    return [tuple(line.get_xdata()) for line in axes.get_lines() if len(line.get_xdata()) > 1]


def test_curves_over_flops_steps_and_seconds():
    """The final evaluation, of other videos, is no part of a curve."""
    flops, steps, seconds = of_one_run()
    done = [ROW.flops_before(step) / 1e12 for step in (100, 300)]
    assert curve(flops) == [pytest.approx(tuple(done))]
    assert curve(steps) == [(100, 300)]
    assert curve(seconds) == [(20.0, 70.0)]


def test_the_final_evaluation_is_a_circle():
    _, steps, _ = of_one_run()
    (circle,) = [line for line in steps.get_lines() if len(line.get_xdata()) == 1]
    assert list(circle.get_xdata()) == [ROW.schedule.total_steps]
    assert circle.get_markerfacecolor() == "none"


@pytest.mark.parametrize(
    "other", [{"flops": ROW.work[1] + 6}, {"steps": ROW.schedule.total_steps + 1}]
)
def test_a_run_of_another_schedule_has_no_curve_over_flops(other):
    flops, steps, _ = of_one_run(**other)
    assert curve(flops) == []
    assert len(curve(steps)) == 1


def test_the_mean_of_three_seeds_has_its_interval():
    runs = [run("baseline", seed, top1=top1) for seed, top1 in enumerate((96.0, 97.0, 98.0))]
    ends = draw_accuracy(comparison(*runs), []).axes[0]
    (bar,) = ends.containers
    (segment,) = bar.lines[2][0].get_segments()
    # Mean 97, standard deviation 1, error 1/√3, times 4.303 for 2 degrees of freedom.
    assert list(segment[:, 1]) == pytest.approx([97 - 2.4843, 97 + 2.4843], abs=1e-3)


def test_one_seed_is_hollow():
    ends = draw_accuracy(comparison(run("baseline")), []).axes[0]
    (bar,) = ends.containers
    assert bar.lines[0].get_markerfacecolor() == "white"


def test_the_control_is_not_enlarged():
    runs = [run("baseline", top1=97.0), run("coarse", top1=48.0)]
    ends, _, _, curves, *_ = draw_accuracy(comparison(*runs), []).axes
    assert ends.get_ylim()[0] > 90
    assert curves.get_ylim()[0] < 48


def test_every_row_has_its_name_and_no_words_hide_each_other():
    figure = draw_accuracy(quickstart(), [ROW])
    assert [*named(figure)] == [
        "baseline",
        "short",
        "long",
        "long + short",
        "coarse only (control)",
    ]
    assert overlaps(figure) == []
    assert outside(figure) == []
