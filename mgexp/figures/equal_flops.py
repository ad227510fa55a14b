"""Rows against the baseline with fewer epochs: is multigrid better than to stop earlier?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from mgexp.figures.labels import Label, along, place_labels
from mgexp.figures.style import (
    COLOURS,
    Columns,
    PrintFigure,
    draw_center,
    draw_seeds,
    flops_unit,
    ink,
    printed,
    quiet_grid,
    reach,
    round_ticks,
    row_colours,
    row_label,
    signed,
)
from mgexp.results.model import BASELINE, Comparison, Estimate, Row
from mgexp.results.tables import points_text

HEIGHT_INCHES: dict[Columns, float] = {1: 4.4, 2: 2.4}
MOST_INTERVAL = 1.0
"""How far an interval is shown beyond the points, in widths of what all points span."""


@dataclass(frozen=True)
class End:
    """The final scores of a row over its training FLOPs, in the figure's unit."""

    name: str
    flops: float
    scores: tuple[float, ...]
    colour: str

    @property
    def center(self) -> tuple[float, float]:
        """FLOPs and the mean score."""
        return self.flops, fmean(self.scores)

    @property
    def seeds(self) -> list[tuple[float, float]]:
        """FLOPs and the score of each seed."""
        return [(self.flops, score) for score in self.scores]


@dataclass(frozen=True)
class Gain:
    """The points that a row has more than the baseline with as many FLOPs: each seed, and their mean."""

    name: str
    colour: str
    difference: Estimate


def draw_equal_flops(comparison: Comparison, columns: Columns = 2) -> PrintFigure:
    """Final scores over training FLOPs, the baselines joined; and what each row has more than the baseline.

    That is the one with as many FLOPs and the same seed; rows without one are left out. Small points are
    seeds, bars 95 % intervals, hollow is one seed. 2.4 inches high; 4.4 in one column, one panel above the other.
    """
    colours = row_colours([row.name for row in comparison.rows])
    rows = comparison.compared_at_equal_flops
    baselines = [row for row in (comparison.row(BASELINE), *comparison.shorter) if row.runs]
    unit, name = flops_unit(max(map(_flops, [*baselines, *rows])))
    line = sorted((_end(row, unit, COLOURS[BASELINE]) for row in baselines), key=lambda e: e.flops)
    ends = [_end(row, unit, colours[row.name]) for row in rows]
    with printed():
        figure = PrintFigure(columns, HEIGHT_INCHES[columns])
        shape = (2, 1) if columns == 1 else (1, 2)
        left, right = figure.subplots(*shape, squeeze=False).ravel()
        _draw_ends(left, line, ends)
        left.set_xlabel(f"training FLOPs{name}")
        left.set_ylabel(f"final {comparison.metric} (%)")
        _draw_gains(right, _gains(comparison, rows, colours))
        right.set_xlabel(f"{comparison.metric} gained at equal FLOPs (points)")
        figure.settle()
        _write_names(left, line, ends)
    return figure


def _flops(row: Row) -> float:
    return row.mean(lambda run: run.train_flops)


def _end(row: Row, unit: float, colour: str) -> End:
    return End(row_label(row.name), _flops(row) / unit, row.scores, colour)


def _gains(comparison: Comparison, rows: Sequence[Row], colours: Mapping[str, str]) -> list[Gain]:
    found = []
    for row in rows:
        difference = comparison.pair_of_equal_flops(row).difference
        assert difference is not None  # the rows have pairs
        found.append(Gain(row_label(row.name), colours[row.name], difference))
    return found


def _draw_ends(axes: Axes, line: Sequence[End], ends: Sequence[End]) -> None:
    axes.plot(*zip(*(one.center for one in line), strict=True), color=COLOURS[BASELINE], lw=0.9)
    for marker, some in (("s", line), ("o", ends)):
        for one in some:
            axes.plot(*zip(*one.seeds, strict=True), "o", ms=2.2, c=one.colour, alpha=0.6, mew=0)
            axes.plot(*one.center, marker, ms=4.2, color=one.colour, zorder=4)
    axes.set_xlim(left=0)
    axes.margins(y=0.12)
    axes.xaxis.set_major_locator(round_ticks(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_major_locator(round_ticks(5))
    quiet_grid(axes)


def _draw_gains(axes: Axes, gains: Sequence[Gain]) -> None:
    """A line for each row, the first on top."""
    for place, gain in enumerate(gains):
        _draw_gain(axes, gain, -place)
    points = [0.0, *(value for gain in gains for value in gain.difference.each)]
    ends = [end for gain in gains for end in gain.difference.interval or ()]
    low, high, span = reach(points, ends, MOST_INTERVAL)
    axes.set_xlim(low - 0.08 * span, high + 0.08 * span)
    axes.set_ylim(0.4 - len(gains), 0.6)
    axes.axvline(0, color=COLOURS[BASELINE], lw=0.7, zorder=1)
    axes.set_yticks([-place for place in range(len(gains))], [gain.name for gain in gains])
    axes.xaxis.set_major_locator(round_ticks(6))
    axes.xaxis.set_major_formatter(FuncFormatter(signed))
    quiet_grid(axes)
    axes.grid(visible=False, axis="y")


def _draw_gain(axes: Axes, gain: Gain, height: float) -> None:
    mean, interval = gain.difference.mean, gain.difference.interval
    across = interval and [[mean - interval[0]], [interval[1] - mean]]
    draw_center(axes, (mean, height), gain.colour, 4.6, across)
    each = gain.difference.each
    draw_seeds(axes, each, [height] * len(each), gain.colour)
    axes.annotate(
        points_text(mean),
        (mean, height),
        xytext=(0, 7),
        textcoords="offset points",
        ha="center",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        color=ink(gain.colour),
    )


def _write_names(axes: Axes, line: Sequence[End], ends: Sequence[End]) -> None:
    kept_free = [point for one in (*line, *ends) for point in one.seeds]
    kept_free += along([one.center for one in line])
    names = [one.name for one in ends] + ["baseline, fewer epochs", "baseline"]
    named = [*ends, line[0], line[-1]]
    labels = [Label(n, *one.center, one.colour) for n, one in zip(names, named, strict=True)]
    place_labels(axes, labels, kept_free)
