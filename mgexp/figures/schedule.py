"""Draw the schedules of rows side by side: shapes, learning rate, BN groups, cost of a step, clips per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from mgexp.figures.style import (
    FAINT,
    PrintFigure,
    printed,
    quiet_grid,
    row_label,
    row_styles,
    unit_of,
)
from mgexp.multigrid.phases import Phase
from mgexp.multigrid.shapes import BatchShape
from mgexp.plan.row_schedules import RowSchedule
from mgexp.results.comparison import COARSE_CONTROL

MAX_ROWS = 4
"""The most rows side by side in a figure. Assumption: nobody can read panels narrower than 4 cm."""
MAX_LR_STEPS = 400
"""The learning rate is drawn at about this many steps. A panel of a few centimetres cannot show more."""


class Panel(NamedTuple):
    """A line of panels. ``level`` is drawn for each shape that a phase takes in turn.

    ``mean`` is the thick line of a phase; None stands for the arithmetic mean of its levels.
    """

    label: str
    scale: Literal["log", "linear"]
    level: Callable[[RowSchedule, Phase, BatchShape], float]
    mean: Callable[[RowSchedule, Phase], float] | None = None

    def levels(self, row: RowSchedule, phase: Phase) -> list[float]:
        return [self.level(row, phase, shape) for shape in phase.cycle.shapes]


def _panels(rows: Sequence[RowSchedule]) -> list[Panel]:
    """List the lines of panels above the learning rate."""
    costs = (r.step_flops(s) for r in rows for p in r.schedule.phases for s in p.cycle.shapes)
    unit, prefix = unit_of(max(costs))
    return [
        Panel("frames", "log", lambda _row, _phase, shape: shape.frames),
        Panel("crop (pixels)", "log", lambda _row, _phase, shape: shape.crop),
        Panel("clips a step", "log", lambda _row, _phase, shape: shape.clips),
        # The schedule is made for one process, so these are the BN groups of the whole mini-batch.
        Panel("BN groups\na step", "log", lambda _row, phase, _shape: phase.num_bn_groups),
        Panel(
            f"{prefix}FLOPs a step", "linear", lambda row, _, shape: row.step_flops(shape) / unit
        ),
        Panel(
            "clips a second\nper TFLOP/s",
            "log",
            lambda row, _, shape: row.clips_per_teraflop([shape]),
            # This is not the mean of the levels, in which a cheap step would count as much as an expensive one.
            mean=lambda row, phase: row.clips_per_teraflop(phase.cycle.shapes),
        ),
    ]


def draw_schedule(rows: Sequence[RowSchedule], names: Sequence[str] = ()) -> PrintFigure:
    """Draw a column of panels for each row. If there are more than MAX_ROWS, draw the first and the last.

    Rows with equal schedules are drawn once. The control is drawn only if there is no other row. ``names``: the
    rows of all figures of a page, so that each has one colour in them; by default those of ``rows``.
    """
    shown: list[RowSchedule] = []
    for row in [row for row in rows if row.name != COARSE_CONTROL] or rows:
        if all(row.schedule != other.schedule for other in shown):
            shown.append(row)
    if len(shown) > MAX_ROWS:
        shown = [*shown[: MAX_ROWS - 1], shown[-1]]
    panels = _panels(shown)
    styles = row_styles(names or [row.name for row in rows])
    with printed():
        figure = PrintFigure(0.55 + 0.82 * (len(panels) + 1))
        grid = figure.subplots(
            len(panels) + 1, len(shown), squeeze=False, sharex="col", sharey="row"
        )
        for row, column in zip(shown, grid.T, strict=True):
            colour = styles[row.name].colour
            schedule = row.schedule
            fewer = f" ({schedule.step_saving:.2f}× fewer)" if schedule.step_saving > 1.005 else ""
            column[0].set_title(row_label(row.name), weight="bold", pad=13)
            column[0].text(
                *(0, 1.06, f"{schedule.total_steps:,} steps{fewer}"),
                transform=column[0].transAxes,
                fontsize=6.5,
                va="bottom",
            )
            for axes, panel in zip(column[:-1], panels, strict=True):
                _draw_levels(axes, row, panel, colour)
            _draw_rates(column[-1], row, colour)
            for axes in column:
                quiet_grid(axes, "y")
                for before, phase in pairwise(schedule.phases):
                    if phase.stage != before.stage:
                        axes.axvline(phase.start_step, color=FAINT, lw=0.6, ls=(0, (1, 2)))
        for line, panel in zip(grid[:-1], panels, strict=True):
            _scale(line[0], panel, shown)
        grid[-1][0].set_ylabel("learning rate")
        figure.align_ylabels(list(grid[:, 0]))
    return figure


def _draw_levels(axes: Axes, row: RowSchedule, panel: Panel, colour: str) -> None:
    """Draw the levels of each phase as thin lines, and their mean as a thick line."""
    steps: list[int] = []
    means: list[float] = []
    for phase in row.schedule.phases:
        ends = (phase.start_step, phase.end_step)
        levels = panel.levels(row, phase)
        if len(set(levels)) > 1:
            axes.fill_between(ends, min(levels), max(levels), color=colour, alpha=0.12, lw=0)
            axes.hlines(sorted(set(levels)), *ends, color=colour, lw=0.6, alpha=0.75)
        # Each phase has two points with the same level, so the line goes straight up or down between phases.
        steps += ends
        means += [panel.mean(row, phase) if panel.mean else fmean(levels)] * 2
    axes.plot(steps, means, color=colour, lw=1.4, solid_capstyle="butt")


def _draw_rates(axes: Axes, row: RowSchedule, colour: str) -> None:
    """Draw the learning rate at both ends of every phase and between them. Give the column its axis of steps."""
    schedule = row.schedule
    ends = {s for phase in schedule.phases for s in (phase.start_step, phase.end_step - 1)}
    stride = max(1, schedule.total_steps // MAX_LR_STEPS)
    steps = sorted({*ends, *range(0, schedule.total_steps, stride)})
    axes.plot(steps, [schedule.plan_at(step).lr for step in steps], color=colour, lw=1.2)
    # The rate falls by a factor from stage to stage, which is the same distance each time on this scale.
    axes.set_yscale("log")
    axes.set_xlim(0, schedule.total_steps)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda step, _: f"{step / 1000:g}k" if step >= 10_000 else f"{step:,.0f}")
    )
    axes.set_xlabel("step")


def _scale(axes: Axes, panel: Panel, rows: Sequence[RowSchedule]) -> None:
    """Label a line of panels. A logarithmic scale has its ticks at the levels that occur."""
    axes.set_ylabel(panel.label)
    if panel.scale == "linear":
        # The axis of costs starts at 0: a step that costs half as much is half as high.
        axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
        axes.yaxis.set_major_locator(MaxNLocator(4))
        return
    levels: set[float] = set()
    for row in rows:
        for phase in row.schedule.phases:
            levels.update(panel.levels(row, phase))
    lowest, *others = sorted(levels)
    highest = max(levels)
    # Labels of ticks overlap when the ticks are closer than about a seventh of the axis. Leave such ticks out.
    apart = max(1.15, (highest / lowest) ** (1 / 7))
    ticks = [lowest]
    for level in others:
        if level >= ticks[-1] * apart:
            ticks.append(level)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    # Without this, Matplotlib would add labels between the levels.
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(_short))
    axes.set_ylim(lowest / 1.3, highest * 1.3)


def _short(value: float, _: object) -> str:
    """Format a whole number with all digits, and any other number with two digits."""
    digits = value if value == round(value) else float(f"{value:.2g}")
    return f"{digits:,.10g}"
