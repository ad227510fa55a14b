"""Draw accuracy over training FLOPs, steps and seconds: how it grows, and where it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from mgexp.figures.schedule import RowSchedule
from mgexp.figures.style import (
    PrintFigure,
    RowStyle,
    draw_mean,
    flops_axis,
    limits,
    printed,
    quiet_grid,
    round_ticks,
    row_label,
    row_styles,
    without_interval,
)
from mgexp.results.model import BASELINE, Comparison, Evaluation, Row, Run, estimate_mean


@dataclass(frozen=True)
class Scale:
    """A horizontal axis: its label, and its value at the end of a run and at an evaluation (None if unknown)."""

    label: str
    end: Callable[[Run], float]
    at: Callable[[Row, Run, Evaluation], float | None]


def draw_accuracy(comparison: Comparison, rows: Sequence[RowSchedule]) -> PrintFigure:
    """Draw the evaluations during training below, and the final ones above, enlarged and with intervals.

    ``rows`` are the schedules that tell the FLOPs up to an evaluation. Over FLOPs, only the end of a run is drawn
    if its schedule is unknown, or if the run took other steps or FLOPs than its schedule.
    """
    styles = row_styles([row.name for row in comparison.rows])
    scales = _scales(comparison, rows)
    # The control ends so far below the others that it would leave no room between them.
    enlarged = {BASELINE, *(row.name for row in comparison.compared)}
    with printed():
        figure = PrintFigure(3.0)
        panels = figure.subplots(2, len(scales), height_ratios=(2, 3), sharex="col", sharey="row")
        for ends, curves, scale in zip(*panels, scales, strict=True):
            _draw_ends(
                ends, [row for row in comparison.finished if row.name in enlarged], scale, styles
            )
            _draw_curves(curves, comparison, scale, styles)
        panels[0, 0].set_ylabel(f"final {comparison.metric} (%)")
        panels[1, 0].set_ylabel(f"validation {comparison.metric} (%)")
        figure.align_ylabels(list(panels[:, 0]))
        figure.add_legend(
            [styles[row.name].handle(row_label(row.name), 1) for row in comparison.finished]
        )
    return figure


def _scales(comparison: Comparison, rows: Sequence[RowSchedule]) -> list[Scale]:
    unit, flops_label = flops_axis(max(run.train_flops for run in comparison.runs))
    schedules = {row.name: row for row in rows}

    def flops(row: Row, run: Run, one: Evaluation) -> float | None:
        schedule = schedules.get(row.name)
        if schedule is None or schedule.work != (run.steps, run.train_flops):
            return None
        return schedule.flops_before(one.step) / unit

    return [
        Scale(flops_label, lambda run: run.train_flops / unit, flops),
        Scale("training steps", lambda run: run.steps, lambda _row, _run, one: one.step),
        Scale(
            "training time (seconds)",
            lambda run: run.train_seconds,
            lambda _row, _run, one: one.train_seconds,
        ),
    ]


def _draw_ends(
    axes: Axes, rows: Sequence[Row], scale: Scale, styles: Mapping[str, RowStyle]
) -> None:
    """Draw the final score of each seed, and their mean with its interval."""
    finals = [final for row in rows if (final := estimate_mean(row.scores))]
    for row, final in zip(rows, finals, strict=True):
        draw_mean(axes, without_interval(row.each(scale.end)), final, styles[row.name])
    if finals:
        low, high = limits(finals)
        axes.set_ylim(low, min(high, 103.0))  # no score is above 100 %; 3 are room for its point
    axes.yaxis.set_major_locator(round_ticks(5))
    axes.tick_params(labelbottom=False)
    quiet_grid(axes)


def _draw_curves(
    axes: Axes, comparison: Comparison, scale: Scale, styles: Mapping[str, RowStyle]
) -> None:
    """Draw a thin line per seed, and its final evaluation as a hollow point.

    The line does not reach the point, because the final evaluation has more videos or views.
    """
    for row in comparison.finished:
        colour, marker = styles[row.name]
        for run in row.runs.values():
            during = [one for one in run.curve if not one.full_protocol]
            points = [(scale.at(row, run, one), one.score) for one in during]
            known = [(at, score) for at, score in points if at is not None]
            if known:
                axes.plot(*zip(*known, strict=True), color=colour, lw=0.9, alpha=0.75)
            axes.plot(scale.end(run), run.score, marker, ms=3, mfc="none", color=colour)
    scores = [s for run in comparison.runs for s in (run.score, *(e.score for e in run.curve))]
    span = max(1.0, max(scores) - min(scores))
    axes.set_ylim(min(scores) - 0.05 * span, max(scores) + 0.05 * span)
    axes.set_xlim(left=0)
    axes.set_xlabel(scale.label)
    axes.xaxis.set_major_locator(round_ticks(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    quiet_grid(axes)
