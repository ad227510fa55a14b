"""Schedules of rows: their FLOPs, clips and rates by hand, and what the lines of their figure say."""

from dataclasses import replace

import pytest
from matplotlib.text import Text
from samples import MACS, RECIPE, outside, overlaps, row_schedule

from mgexp.figures.schedule import draw_schedule
from mgexp.figures.style import ink, row_styles
from mgexp.multigrid.recipe import BASELINE, LONG, LONG_SHORT, SHORT


@pytest.fixture(scope="module")
def row():
    return row_schedule()


def step_by_step(row, steps):
    plans = (row.schedule.plan_at(step) for step in range(steps))
    return sum(6 * plan.clips * MACS[plan.frames, plan.crop] for plan in plans)


@pytest.mark.parametrize("step", [0, 1, 2, 100, 217, 428])
def test_flops_before_a_step_are_the_sum_of_the_steps_before(row, step):
    assert row.flops_before(step) == step_by_step(row, step)


def test_a_whole_run_does_the_work_of_all_its_steps(row):
    total = row.schedule.total_steps
    assert row.work == (total, step_by_step(row, total))


def test_the_baseline_costs_the_same_at_every_step():
    row = row_schedule("baseline", BASELINE)
    # 8 clips × 16 frames × 64² pixels × 1,000 multiply-adds × 2 × 3.
    assert row.flops_before(10) == 10 * 8 * 16 * 64**2 * 1000 * 6


def test_clips_for_each_teraflop(row):
    # The first cycle: 128 clips of 4 × 32², twice 64 clips of 4 × 45².
    flops = 6000 * (128 * 4 * 32**2 + 2 * 64 * 4 * 45**2)
    assert row.clips_per_teraflop(row.schedule.phases[0].cycle.shapes) == pytest.approx(
        256 / flops * 1e12
    )


def test_learning_rates_hold_every_jump(row):
    found = dict(row.learning_rates())
    ends = {step for one in row.schedule.phases for step in (one.start_step, one.end_step - 1)}
    assert ends <= found.keys()
    assert len(found) <= 450
    assert all(rate == row.schedule.plan_at(step).lr for step, rate in found.items())


def test_stages_start_where_the_rate_falls(row):
    firsts = [next(p.start_step for p in row.schedule.phases if p.stage == k) for k in (1, 2)]
    assert row.stage_starts() == firsts
    assert len(RECIPE.stage_epochs) == 3


ROWS = {"baseline": BASELINE, "short": SHORT, "long": LONG, "long_short": LONG_SHORT}


@pytest.fixture(scope="module")
def figure():
    return draw_schedule([row_schedule(name, multigrid) for name, multigrid in ROWS.items()])


def panel(figure, label, column):
    """The axes in a column of the line of that label."""
    line = next(axes for axes in figure.axes if axes.get_ylabel() == label)
    return figure.axes[figure.axes.index(line) + column]


def first_mean(axes):
    """The thick line where it starts."""
    return axes.get_lines()[0].get_ydata()[0]


@pytest.mark.parametrize(
    ("label", "column", "value"),
    [
        ("frames", 0, 16),
        ("frames", 3, 4),
        ("crop (pixels)", 1, (32 + 45 + 64) / 3),
        ("clips a step", 2, 64),
        ("clips a step", 3, (128 + 64 + 64) / 3),
        ("BN groups\na step", 3, 8),
        ("GFLOPs a step", 0, 6e-6 * 8 * 16 * 64**2),
        ("clips a second\nper TFLOP/s", 0, 1e12 / (6000 * 16 * 64**2)),
    ],
)
def test_the_thick_line_starts_at_the_mean_of_the_first_cycle(figure, label, column, value):
    assert first_mean(panel(figure, label, column)) == pytest.approx(value)


def test_the_warm_up_ends_at_eight_times_the_rate(figure):
    rates = figure.axes[-1].get_lines()[0].get_ydata()
    assert rates[0] == pytest.approx(0.01)
    assert max(rates) == pytest.approx(0.8)


def test_thin_lines_are_the_shapes_taken_in_turn(figure):
    (lines, *_) = [
        one for one in panel(figure, "clips a step", 3).collections if hasattr(one, "get_segments")
    ]
    assert {segment[0][1] for segment in lines.get_segments()} == {64, 128}


def test_each_column_is_as_long_as_its_row(figure):
    assert panel(figure, "learning rate", 0).get_xlim() == (0, 1500)
    assert panel(figure, "learning rate", 3).get_xlim()[1] < 450


def test_no_words_hide_each_other_or_leave_the_figure(figure):
    assert overlaps(figure) == []
    assert outside(figure) == []


def test_rows_that_do_the_same_are_shown_once():
    rows = [row_schedule(name, BASELINE) for name in ("baseline", "same")]
    assert len(draw_schedule(rows).axes) == 7


def test_a_row_has_the_colour_that_it_has_in_the_other_figures_of_a_page():
    names = ["baseline", "a", "b", "c"]
    figure = draw_schedule([row_schedule("a", LONG), row_schedule("c", SHORT)], names)
    found = {
        text.get_text(): text.get_color()
        for axes in figure.axes
        for text in axes.get_children()
        if isinstance(text, Text) and text.get_text() in names
    }
    assert found == {name: ink(row_styles(names)[name].colour) for name in ("a", "c")}


def test_of_many_rows_the_first_ones_and_the_last_are_shown():
    factors = (1.0, 1.25, 1.5, 1.75, 2.0)
    rows = [row_schedule(f"x{f}", replace(LONG_SHORT, epoch_factor=f)) for f in factors]
    titles = [axes.get_title(loc="left") for axes in draw_schedule(rows).axes[:4]]
    assert titles == ["x1.0", "x1.25", "x1.5", "x2.0"]


def test_dotted_lines_are_where_the_stages_change(figure):
    row = row_schedule()
    lines = [line for line in panel(figure, "frames", 3).get_lines() if line.get_linestyle() != "-"]
    assert [line.get_xdata()[0] for line in lines] == row.stage_starts()


def test_the_control_is_left_out():
    rows = [row_schedule("baseline", BASELINE), row_schedule("coarse", LONG)]
    figure = draw_schedule(rows)
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")] == [
        "baseline"
    ]
