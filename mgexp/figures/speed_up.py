"""Speed-up against accuracy: what each row gains in time and FLOPs, and what it gains or loses in accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from mgexp.figures.labels import Label, along, place_labels
from mgexp.figures.style import (
    COLOURS,
    QUIET,
    Columns,
    PrintFigure,
    draw_center,
    draw_seeds,
    printed,
    quiet_grid,
    reach,
    round_ticks,
    row_colours,
    row_label,
    signed,
)
from mgexp.results.model import BASELINE, Comparison, Estimate, Row, Run
from mgexp.results.tables import points_text

HEIGHT_INCHES: dict[Columns, float] = {1: 5.0, 2: 2.7}
MOST_INTERVAL = 1.5
"""How far an interval is shown beyond the points, in widths of what all points span."""
MOST_NUMBERED = 5
"""Rows whose numbers are written beside their names: those of more would hide each other."""
LOSS = "#F6E9E2"
"""Behind everything that is less accurate than the baseline."""


@dataclass(frozen=True)
class Gain:
    """A way to count what training takes."""

    label: str
    of: Callable[[Run], float]


GAINS = (
    Gain("speed-up in training time", lambda run: run.train_seconds),
    Gain("saving of training FLOPs", lambda run: run.train_flops),
)


@dataclass(frozen=True)
class Point:
    """A row against the baseline: what it gains, and its difference in accuracy."""

    row: Row
    gain: Estimate
    accuracy: Estimate


def draw_speed_up(comparison: Comparison, columns: Columns = 2) -> PrintFigure:
    """A point per row that can be compared with the baseline, in training time and in FLOPs.

    Small points are seeds; bars are 95 % intervals, and one that leaves the panel goes on. Hollow: one seed, no
    interval. What lies in the tinted half is less accurate than the baseline.
    """
    colours = row_colours([row.name for row in comparison.rows])
    with printed():
        figure = PrintFigure(columns, HEIGHT_INCHES[columns])
        shape = (2, 1) if columns == 1 else (1, 2)
        panels = figure.subplots(*shape, squeeze=False, sharey=True).ravel()
        found = [[*_points(comparison, gain)] for gain in GAINS]
        for axes, gain, points in zip(panels, GAINS, found, strict=True):
            _draw_panel(axes, points, colours)
            axes.set_xlabel(gain.label)
            if columns == 1 or axes is panels[0]:
                axes.set_ylabel(f"{comparison.metric} against the baseline (points)")
        figure.settle()
        for axes, points in zip(panels, found, strict=True):
            _write_names(axes, points, colours)
    return figure


def _points(comparison: Comparison, gain: Gain) -> list[Point]:
    found = []
    for row in comparison.compared:
        pair = comparison.pair(row)
        ratio, difference = pair.ratio(gain.of), pair.difference
        if ratio and difference:
            found.append(Point(row, ratio, difference))
    return found


def _draw_panel(axes: Axes, points: list[Point], colours: Mapping[str, str]) -> None:
    axes.set_xlim(*_limits([r for p in points for r in p.gain.each], _speed_up_ends(points), 1.0))
    axes.set_ylim(
        *_limits([d for p in points for d in p.accuracy.each], _accuracy_ends(points), 0.0)
    )
    axes.axhspan(axes.get_ylim()[0], 0, color=LOSS, lw=0, zorder=0)
    axes.axhline(0, color=COLOURS[BASELINE], lw=0.7, zorder=1)
    axes.axvline(1, color=COLOURS[BASELINE], lw=0.7, zorder=1)
    axes.plot(1, 0, "s", ms=4.2, color=COLOURS[BASELINE], zorder=3)
    for point in points:
        _draw_point(axes, point, colours[point.row.name])
    axes.xaxis.set_major_locator(round_ticks(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.yaxis.set_major_locator(round_ticks(6))
    axes.yaxis.set_major_formatter(FuncFormatter(signed))
    quiet_grid(axes)


def _draw_point(axes: Axes, point: Point, colour: str) -> None:
    """Seeds, and the mean with its intervals; an interval of nothing but equal numbers is a point."""
    gain, accuracy = point.gain, point.accuracy
    across, up = None, None
    if gain.interval:
        low, high = gain.interval
        across = [[max(0.0, gain.mean - low)], [max(0.0, high - gain.mean)]]  # 0 but for rounding
    if accuracy.interval:
        up = accuracy.interval[1] - accuracy.mean
    draw_center(axes, (gain.mean, accuracy.mean), colour, 4.6, across, up)
    draw_seeds(axes, gain.each, accuracy.each, colour)


def _speed_up_ends(points: list[Point]) -> list[float]:
    return [end for point in points for end in point.gain.interval or ()]


def _accuracy_ends(points: list[Point]) -> list[float]:
    return [end for point in points for end in point.accuracy.interval or ()]


def _limits(values: list[float], ends: list[float], origin: float) -> tuple[float, float]:
    """From the lowest to the highest of all, and of the intervals as far as they do not dwarf the points."""
    low, high, span = reach([origin, *values], ends, MOST_INTERVAL)
    return low - 0.12 * span, high + 0.12 * span


def _write_names(axes: Axes, points: list[Point], colours: Mapping[str, str]) -> None:
    """Rows, baseline and the two halves by name."""
    pairs = [pair for p in points for pair in zip(p.gain.each, p.accuracy.each, strict=True)]
    labels = [Label("baseline", 1, 0, COLOURS[BASELINE])]
    for point in points:
        text = row_label(point.row.name)
        if len(points) <= MOST_NUMBERED:
            text += f"\n{point.gain.mean:.2f}×, {points_text(point.accuracy.mean)} points"
        labels.append(Label(text, point.gain.mean, point.accuracy.mean, colours[point.row.name]))
    for place, words, at in ((1.0, "more accurate", "top"), (0.0, "less accurate", "bottom")):
        axes.text(
            0.99,
            place,
            words,
            transform=axes.transAxes,
            ha="right",
            va=at,
            color=QUIET,
            style="italic",
        )
    place_labels(axes, labels, [*pairs, *_lines(axes, points)])


def _lines(axes: Axes, points: list[Point]) -> list[tuple[float, float]]:
    """Places on the axes through the baseline, and on the bars of the intervals, to be kept free too."""
    found = along([(1, end) for end in axes.get_ylim()]) + along(
        [(end, 0) for end in axes.get_xlim()]
    )
    for p in points:
        found += along([(p.gain.mean, end) for end in p.accuracy.interval or ()])
        found += along([(end, p.accuracy.mean) for end in p.gain.interval or ()])
    return found
