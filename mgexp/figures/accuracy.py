"""Accuracy over what training takes, FLOPs, steps and seconds: how it grows, and where it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from mgexp.figures.labels import Label, along, place_labels
from mgexp.figures.schedule import RowSchedule
from mgexp.figures.style import (
    Columns,
    PrintFigure,
    draw_center,
    flops_unit,
    printed,
    quiet_grid,
    reach,
    round_ticks,
    row_colours,
    row_label,
)
from mgexp.results.model import (
    BASELINE,
    Comparison,
    Estimate,
    Evaluation,
    Row,
    Run,
    estimate_mean,
)

HEIGHT_INCHES: dict[Columns, float] = {1: 7.2, 2: 3.1}
MOST_INTERVAL = 2.0
"""How far the upper panels show an interval beyond the points, in heights of what all points span."""


@dataclass(frozen=True)
class Scale:
    """What accuracy is shown over: ``at`` an evaluation of a run, None where it is not known."""

    label: str
    at: Callable[[Row, Run, Evaluation], float | None]
    end: Callable[[Run], float]


def draw_accuracy(
    comparison: Comparison, rows: Sequence[RowSchedule], columns: Columns = 2
) -> PrintFigure:
    """Below: each run's evaluations during training. Above: the final evaluations, enlarged, with intervals.

    ``rows`` say how many FLOPs were done when a run was evaluated; one whose schedule is not known, or comes to
    other steps or FLOPs than the run, has its end alone there. 3.1 inches high, 7.2 in one column.
    """
    colours = row_colours([row.name for row in comparison.rows])
    scales = _scales(comparison, rows)
    with printed():
        figure = PrintFigure(columns, HEIGHT_INCHES[columns])
        pairs = _pairs(figure, columns)
        for (ends, curves), scale in zip(pairs, scales, strict=True):
            _draw_ends(ends, comparison, scale, colours)
            _draw_curves(curves, comparison, scale, colours)
        for ends, curves in pairs if columns == 1 else pairs[:1]:
            ends.set_ylabel(f"final {comparison.metric} (%)")
            curves.set_ylabel(f"validation {comparison.metric} (%)")
        figure.align_ylabels([axes for pair in pairs for axes in pair])
        figure.settle()
        for (ends, curves), scale in zip(pairs, scales, strict=True):
            _name_ends(ends, comparison, scale, colours)
            _name_control(curves, comparison, scale, colours)
    return figure


def _pairs(figure: PrintFigure, columns: Columns) -> list[tuple[Axes, Axes]]:
    """The panels of each scale: for the ends, and below them for the curves; they share what they can."""
    if columns == 2:
        above, below = figure.subplots(2, 3, height_ratios=(2, 3), sharex="col", sharey="row")
        return list(zip(above, below, strict=True))
    column = figure.subplots(6, 1, height_ratios=(2, 3) * 3)
    pairs = list(zip(column[::2], column[1::2], strict=True))
    for ends, curves in pairs:
        ends.sharex(curves)
    return pairs


def _scales(comparison: Comparison, rows: Sequence[RowSchedule]) -> list[Scale]:
    runs = [run for row in comparison.finished for run in row.runs.values()]
    unit, name = flops_unit(max(run.train_flops for run in runs))
    schedules = {row.name: row for row in rows}

    def flops(row: Row, run: Run, one: Evaluation) -> float | None:
        schedule = schedules.get(row.name)
        if schedule is None or schedule.work != (run.steps, run.train_flops):
            return None
        return schedule.flops_before(one.step) / unit

    return [
        Scale(f"training FLOPs{name}", flops, lambda run: run.train_flops / unit),
        Scale("training steps", lambda _row, _run, one: one.step, lambda run: run.steps),
        Scale(
            "training time (seconds)",
            lambda _row, _run, one: one.train_seconds,
            lambda run: run.train_seconds,
        ),
    ]


def _draw_curves(
    axes: Axes, comparison: Comparison, scale: Scale, colours: Mapping[str, str]
) -> None:
    """A thin line per seed, and its final evaluation, of other videos or views, as a circle."""
    for row in comparison.finished:
        for run in row.runs.values():
            during = [one for one in run.curve if not one.full_protocol]
            points = [(scale.at(row, run, one), one.score) for one in during]
            known = [(at, score) for at, score in points if at is not None]
            if known:
                axes.plot(*zip(*known, strict=True), color=colours[row.name], lw=0.9, alpha=0.75)
            axes.plot(scale.end(run), run.score, "o", ms=3, mfc="none", color=colours[row.name])
    axes.set_xlim(left=0)
    axes.set_ylim(*_all_limits(comparison))
    axes.set_xlabel(scale.label)
    axes.xaxis.set_major_locator(round_ticks(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    quiet_grid(axes)


def _draw_ends(
    axes: Axes, comparison: Comparison, scale: Scale, colours: Mapping[str, str]
) -> None:
    """A small point per seed; a large one at their mean, with the 95 % interval of the mean."""
    for row in _ways(comparison):
        colour = colours[row.name]
        at = [scale.end(run) for run in row.runs.values()]
        scores = row.scores
        axes.plot(at, scores, "o", ms=2.2, color=colour, alpha=0.6, mew=0)
        final = _final(row)
        up = final.interval and final.interval[1] - final.mean
        draw_center(axes, (fmean(at), final.mean), colour, 4.2, up=up)
    axes.set_ylim(*_limits(comparison))
    axes.yaxis.set_major_locator(round_ticks(5))
    axes.tick_params(labelbottom=False)
    quiet_grid(axes)


def _final(row: Row) -> Estimate:
    """The mean score of a finished row and its interval."""
    mean = estimate_mean(row.scores)
    assert mean is not None  # a finished row has a run
    return mean


def _ends(row: Row) -> tuple[float, float]:
    """Of the interval; of one seed, its score."""
    final = _final(row)
    return final.interval or (final.mean, final.mean)


def _ways(comparison: Comparison) -> list[Row]:
    """Baseline and what is compared with it; the control ends too far below to be enlarged with them."""
    compared = {row.name for row in comparison.compared}
    return [row for row in comparison.finished if row.name in {BASELINE, *compared}]


def _all_limits(comparison: Comparison) -> tuple[float, float]:
    """All evaluations of the plain videos."""
    runs = [run for row in comparison.finished for run in row.runs.values()]
    scores = [score for run in runs for score in (run.score, *(one.score for one in run.curve))]
    span = max(1.0, max(scores) - min(scores))
    return min(scores) - 0.05 * span, max(scores) + 0.05 * span


def _limits(comparison: Comparison) -> tuple[float, float]:
    """All final scores, and their intervals as far as they do not dwarf them."""
    scores = [run.score for row in _ways(comparison) for run in row.runs.values()]
    if not scores:
        return 0.0, 100.0
    ends = [end for row in _ways(comparison) for end in _ends(row)]
    low, high, span = reach(scores, ends, MOST_INTERVAL)
    return low - 0.25 * span, min(high + 0.45 * span, 103.0)


def _name_ends(
    axes: Axes, comparison: Comparison, scale: Scale, colours: Mapping[str, str]
) -> None:
    """The rows that are enlarged by their names."""
    ways = _ways(comparison)
    points = [(scale.end(run), run.score) for row in ways for run in row.runs.values()]
    place_labels(axes, [_end(row, scale, colours) for row in ways], [*points, *_bars(ways, scale)])


def _bars(ways: Sequence[Row], scale: Scale) -> list[tuple[float, float]]:
    """Places on the intervals, to be kept free of names."""
    found = []
    for row in ways:
        at = fmean(map(scale.end, row.runs.values()))
        found += along([(at, end) for end in _ends(row)])
    return found


def _name_control(
    axes: Axes, comparison: Comparison, scale: Scale, colours: Mapping[str, str]
) -> None:
    """What is not enlarged by its name, clear of the curves."""
    ways = _ways(comparison)
    others = [_end(row, scale, colours) for row in comparison.finished if row not in ways]
    curves = [
        [(at, one.score) for one in run.curve if (at := scale.at(row, run, one)) is not None]
        for row in comparison.finished
        for run in row.runs.values()
    ]
    place_labels(axes, others, [point for curve in curves for point in along(curve)])


def _end(row: Row, scale: Scale, colours: Mapping[str, str]) -> Label:
    at = fmean(map(scale.end, row.runs.values()))
    return Label(row_label(row.name), at, _final(row).mean, colours[row.name])
