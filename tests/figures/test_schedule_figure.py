"""Schedules of rows: their FLOPs, clips and rates by hand, and what the lines of their figure say."""

import pytest
from samples import MACS, row_schedule

from mgexp.figures.schedule import draw_schedule
from mgexp.models.cost import train_flops
from mgexp.multigrid.recipe import BASELINE, LONG, LONG_SHORT, SHORT


@pytest.fixture(scope="module")
def row():
    return row_schedule()


def step_by_step(row, steps):
    plans = (row.schedule.plan_at(step) for step in range(steps))
    return sum(6 * plan.clips * MACS[plan.frames, plan.crop] for plan in plans)


@pytest.mark.parametrize("step", [0, 1, 2, 100, 217, 428])
def test_flops_before_a_step_are_the_sum_of_the_steps_before(row, step):
    assert train_flops(row.schedule, row.macs, step) == step_by_step(row, step)
    assert row.train_flops == step_by_step(row, row.schedule.total_steps)


def test_clips_for_each_teraflop(row):
    # The first cycle: 128 clips of 4 × 32², twice 64 clips of 4 × 45².
    flops = 6000 * (128 * 4 * 32**2 + 2 * 64 * 4 * 45**2)
    assert row.clips_per_teraflop(row.schedule.phases[0].cycle.shapes) == pytest.approx(
        256 / flops * 1e12
    )


ROWS = {"baseline": BASELINE, "short": SHORT, "long": LONG, "long_short": LONG_SHORT}


@pytest.fixture(scope="module")
def figure():
    return draw_schedule([row_schedule(name, multigrid) for name, multigrid in ROWS.items()])


def panel(figure, label, column):
    """The axes in a column of the line of that label."""
    line = next(axes for axes in figure.axes if axes.get_ylabel() == label)
    return figure.axes[figure.axes.index(line) + column]


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
    thick = panel(figure, label, column).get_lines()[0]
    assert thick.get_ydata()[0] == pytest.approx(value)


def test_the_warm_up_ends_at_eight_times_the_rate(figure):
    rates = figure.axes[-1].get_lines()[0].get_ydata()
    assert rates[0] == pytest.approx(0.01)
    assert max(rates) == pytest.approx(0.8)


def test_thin_lines_are_the_shapes_taken_in_turn(figure):
    (lines, *_) = [
        one for one in panel(figure, "clips a step", 3).collections if hasattr(one, "get_segments")
    ]
    assert {segment[0][1] for segment in lines.get_segments()} == {64, 128}
