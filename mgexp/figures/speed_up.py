"""Draw what rows gain and lose against the whole baseline, and against a shorter one with as many FLOPs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from mgexp.figures.style import (
    COLOURS,
    QUIET,
    PrintFigure,
    RowStyle,
    draw_mean,
    draw_seeds,
    flops_axis,
    ink,
    limits,
    printed,
    quiet_grid,
    round_ticks,
    row_label,
    row_styles,
    signed,
    without_interval,
)
from mgexp.results.model import BASELINE, Comparison, Estimate, Row
from mgexp.results.tables import points_text

LOSS_COLOUR = "#F6E9E2"
"""The tint behind points that are less accurate than the baseline."""

# --- speed-up against accuracy


class Gain(NamedTuple):
    """A row against the baseline: ratios of training time and FLOPs, and the difference in points."""

    name: str
    time: Estimate
    flops: Estimate
    points: Estimate

    @property
    def label(self) -> str:
        """The name of the row and its numbers."""
        ratios = f"{self.time.mean:.2f}× (FLOPs {self.flops.mean:.2f}×)"
        return f"{row_label(self.name)}: {ratios}, {points_text(self.points.mean)} points"


def draw_speed_up(comparison: Comparison) -> PrintFigure:
    """Draw a point per row that can be compared with the baseline, over training time and over FLOPs.

    Small points are seeds. Bars are 95 % intervals; the panel may cut them off. A hollow point is one seed without
    an interval. Points in the tinted half are less accurate than the baseline.
    """
    gains = []
    for row in comparison.compared:
        pair = comparison.pair(row)
        time, flops, points = pair.speed_up, pair.flop_saving, pair.difference
        if time and flops and points:
            gains.append(Gain(row.name, time, flops, points))
    styles = row_styles([row.name for row in comparison.rows])
    with printed():
        figure = PrintFigure(2.5)
        left, right = figure.subplots(1, 2, sharey=True)
        _draw_gains(left, {gain.name: (gain.time, gain.points) for gain in gains}, styles)
        _draw_gains(right, {gain.name: (gain.flops, gain.points) for gain in gains}, styles)
        left.set_xlabel("speed-up in training time")
        right.set_xlabel("saving of training FLOPs")
        left.set_ylabel(f"{comparison.metric} against the baseline (points)")
        handles = [styles[gain.name].handle(gain.label) for gain in gains]
        figure.add_legend([styles[BASELINE].handle(BASELINE), *handles])
    return figure


def _draw_gains(
    axes: Axes, gains: Mapping[str, tuple[Estimate, Estimate]], styles: Mapping[str, RowStyle]
) -> None:
    """Draw (ratio, difference) of each row around the baseline at (1, 0)."""
    axes.set_xlim(*limits([ratio for ratio, _ in gains.values()], 1.0))
    axes.set_ylim(*limits([difference for _, difference in gains.values()], 0.0))
    colour, marker = styles[BASELINE]
    axes.axhspan(axes.get_ylim()[0], 0, color=LOSS_COLOUR, lw=0, zorder=0)
    axes.axhline(0, color=colour, lw=0.7, zorder=1)
    axes.axvline(1, color=colour, lw=0.7, zorder=1)
    axes.plot(1, 0, marker, ms=4.4, color=colour, zorder=3)
    for name, (ratio, difference) in gains.items():
        draw_mean(axes, ratio, difference, styles[name])
    for height, words, aligned in ((1.0, "more accurate", "top"), (0.0, "less accurate", "bottom")):
        axes.text(
            0.99, height, words, transform=axes.transAxes, ha="right", va=aligned, color=QUIET, style="italic"
        )  # fmt: skip
    axes.xaxis.set_major_locator(round_ticks(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.yaxis.set_major_locator(round_ticks(6))
    axes.yaxis.set_major_formatter(FuncFormatter(signed))
    quiet_grid(axes)


# --- at equal FLOPs


def draw_equal_flops(comparison: Comparison) -> PrintFigure:
    """Draw final scores over training FLOPs, and beside them what each row gains over its baseline.

    Each row is compared with the baseline of as many FLOPs and the same seed. Rows without one are left out.
    Small points are seeds, and bars are 95 % intervals. A hollow point is one seed.
    """
    styles = row_styles([row.name for row in comparison.rows])
    rows = comparison.compared_at_equal_flops
    with printed():
        figure = PrintFigure(2.2)
        left, right = figure.subplots(1, 2)
        _draw_scores(left, comparison, rows, styles)
        _draw_differences(right, comparison, rows, styles)
        baseline = styles[BASELINE].handle("baseline, whole and with fewer epochs", 1)
        figure.add_legend(
            [baseline, *(styles[row.name].handle(row_label(row.name)) for row in rows)]
        )
    return figure


def _draw_scores(
    axes: Axes, comparison: Comparison, rows: Sequence[Row], styles: Mapping[str, RowStyle]
) -> None:
    """Draw the seeds of each row and their mean over its FLOPs, and a line through the baselines."""
    baselines = [row for row in (comparison.baseline, *comparison.shorter) if row.runs]
    flops = {row.name: row.mean(lambda run: run.train_flops) for row in (*baselines, *rows)}
    unit, label = flops_axis(max(flops.values()))
    baselines.sort(key=lambda row: flops[row.name])
    axes.plot(
        [flops[row.name] / unit for row in baselines],
        [fmean(row.scores) for row in baselines],
        color=COLOURS[BASELINE],
        lw=0.9,
    )
    for row, (colour, marker) in [
        *((row, styles[BASELINE]) for row in baselines),
        *((row, styles[row.name]) for row in rows),
    ]:
        at = flops[row.name] / unit
        draw_seeds(axes, [at] * len(row.scores), row.scores, colour)
        # The mark of the mean is in front, because it is larger here than the spread of the seeds.
        axes.plot(at, fmean(row.scores), marker, ms=4.4, color=colour, zorder=6)
    axes.set_xlim(left=0)
    axes.margins(y=0.08)
    axes.set_xlabel(label)
    axes.set_ylabel(f"final {comparison.metric} (%)")
    axes.xaxis.set_major_locator(round_ticks(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_major_locator(round_ticks(5))
    quiet_grid(axes)


def _draw_differences(
    axes: Axes, comparison: Comparison, rows: Sequence[Row], styles: Mapping[str, RowStyle]
) -> None:
    """Draw a line for each row, the first on top: the points that it gains over the baseline of as many FLOPs."""
    pairs = [(row.name, comparison.pair_of_equal_flops(row).difference) for row in rows]
    found = {name: difference for name, difference in pairs if difference}
    for place, (name, difference) in enumerate(found.items()):
        style = styles[name]
        height = without_interval([-place] * len(difference.each))
        draw_mean(axes, difference, height, style)
        axes.annotate(
            points_text(difference.mean),
            (difference.mean, -place),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            color=ink(style.colour),
        )
    axes.set_xlim(*limits([*found.values()], 0.0))
    axes.set_ylim(0.4 - len(found), 0.6)
    axes.axvline(0, color=COLOURS[BASELINE], lw=0.7, zorder=1)
    axes.set_yticks([-place for place in range(len(found))], [row_label(name) for name in found])
    axes.set_xlabel(f"{comparison.metric} gained at equal FLOPs (points)")
    axes.xaxis.set_major_locator(round_ticks(6))
    axes.xaxis.set_major_formatter(FuncFormatter(signed))
    quiet_grid(axes, "x")
