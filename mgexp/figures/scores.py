"""Draw scores over FLOPs, steps and seconds, and gains and losses against a whole or a shorter baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from matplotlib.axes import Axes

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
    round_numbers,
    row_label,
    row_styles,
    signed,
    without_interval,
)
from mgexp.results.estimates import Estimate, estimate_score
from mgexp.results.model import BASELINE, Comparison, Evaluation, Pair, Row, Run
from mgexp.results.schedules import RowSchedule
from mgexp.results.tables import points_text

LEAST_POINTS = 5.0
"""The least range of an axis of percent or points. Assumption: on a shorter one, half a point looks like a lot."""
MANY_ROWS = 8
"""With more rows than this, points and curves of seeds would hide each other. Assumption."""
LARGEST_LOSS = 15.0
"""A row that loses more points is not on the axis of `draw_gains`, where it would press the others together.
Assumption."""
LOSS_COLOUR = "#F6E9E2"
"""The tint behind points that are less accurate than the baseline."""

# --- accuracy over FLOPs, steps and seconds


Place = tuple[float, float]
"""A place on an axis of FLOPs, steps or seconds, and a score."""


class Scale(NamedTuple):
    """A horizontal axis: its label, and its values at the end of a run and at an evaluation (None if unknown)."""

    label: str
    end: Callable[[Run], float | None]
    at: Callable[[Row, Run, Evaluation], float | None]


def accuracy_scales(comparison: Comparison, rows: Sequence[RowSchedule]) -> tuple[Scale, ...]:
    """Return the axes over which accuracy is drawn: FLOPs, steps and seconds.

    ``rows`` are the schedules, from which the FLOPs up to an evaluation are counted. If the schedule of a run is
    unknown, or if the run took other steps or FLOPs, only the FLOPs at the end of the run are known. Seconds that
    do not count, or of another machine than most, are unknown. An axis on which only one of several rows is known
    is left out.
    """
    schedules = {row.name: row for row in rows}
    timed = {run.key for run in comparison.timed.runs}
    unit, flops_label = flops_axis(max(run.train_flops for run in comparison.runs))

    def flops(row: Row, run: Run, one: Evaluation) -> float | None:
        schedule = schedules.get(row.name)
        known = schedule.flops_at(run, one) if schedule else None
        return None if known is None else known / unit

    scales = (
        Scale(flops_label, lambda run: run.train_flops / unit, flops),
        Scale("training steps", lambda run: run.steps, lambda _row, _run, one: one.step),
        Scale(
            "training time (seconds)",
            lambda run: run.train_seconds if run.key in timed else None,
            lambda _row, run, one: one.train_seconds if run.key in timed else None,
        ),
    )
    least = min(2, len(comparison.finished))

    def num_known(scale: Scale) -> int:
        return sum(any(map(scale.end, row.runs.values())) for row in comparison.finished)

    return tuple(scale for scale in scales if num_known(scale) >= least)


def draw_accuracy(comparison: Comparison, rows: Sequence[RowSchedule]) -> PrintFigure:
    """Draw the evaluations during training below, and the final ones above, enlarged and with intervals.

    ``rows`` are as in `accuracy_scales`.
    """
    scales = accuracy_scales(comparison, rows)
    styles = row_styles([row.name for row in comparison.rows])
    with printed():
        figure = PrintFigure(3.0)
        panels = figure.subplots(2, len(scales), height_ratios=(2, 3), sharex="col", sharey="row")
        for ends, curves, scale in zip(*panels, scales, strict=True):
            _draw_ends(ends, comparison, scale, styles)
            _draw_curves(curves, comparison, scale, styles)
        panels[0, 0].set_ylabel(f"final {comparison.metric} (%)")
        panels[1, 0].set_ylabel(f"validation {comparison.metric} (%)")
        figure.align_ylabels(list(panels[:, 0]))
        figure.add_legend(
            [styles[row.name].handle(row_label(row.name), 1) for row in comparison.finished]
        )
    return figure


def _draw_ends(
    axes: Axes, comparison: Comparison, scale: Scale, styles: Mapping[str, RowStyle]
) -> None:
    """Draw the final score of each seed, and their mean with its interval."""
    finals = []
    # The control is not drawn. It ends so far below the other rows that they would all lie on one spot.
    for row in (comparison.baseline, *comparison.compared):
        ends = [math.nan if at is None else at for at in map(scale.end, row.runs.values())]
        known = [at for at in ends if not math.isnan(at)]
        if final := estimate_score(row.scores):
            finals.append(final)
            # A seed whose place is unknown is in the mean accuracy, and has no point of its own.
            if known:
                draw_mean(axes, Estimate((*ends,), fmean(known), None), final, styles[row.name])
    if finals:
        _limit_percent(axes, finals)
    round_numbers(axes.yaxis, 5)
    axes.tick_params(labelbottom=False)
    quiet_grid(axes)


def _draw_curves(
    axes: Axes, comparison: Comparison, scale: Scale, styles: Mapping[str, RowStyle]
) -> None:
    """Draw a thin line per seed, and its final evaluation as a small point; with MANY_ROWS, a line per row."""
    is_mean = len(comparison.finished) > MANY_ROWS
    for row in comparison.finished:
        colour = styles[row.name].colour
        lines = [line for run in row.runs.values() if (line := _curve(row, run, scale))]
        for line in [_mean_curve(lines)] if is_mean and lines else lines:
            axes.plot(*zip(*line, strict=True), color=colour, lw=0.9, alpha=0.75)
        ends = [(at, run.score) for run in row.runs.values() if (at := scale.end(run)) is not None]
        for at, score in [_mean_point(ends)] if is_mean and ends else ends:
            draw_seeds(axes, [at], [score], colour)
    scores = [s for run in comparison.runs for s in (run.score, *(e.score for e in run.curve))]
    _limit_percent(axes, [], *scores)
    axes.set_xlim(left=0)
    axes.set_xlabel(scale.label)
    round_numbers(axes.xaxis, 5, "{:,.10g}".format)
    quiet_grid(axes)


def _curve(row: Row, run: Run, scale: Scale) -> list[Place]:
    """List the evaluations during a run whose place on the axis is known."""
    # The line ends before the final point, because the final evaluation has more videos or views.
    during = [one for one in run.curve if not one.full_protocol]
    points = [(scale.at(row, run, one), one.score) for one in during]
    return [(at, score) for at, score in points if at is not None]


def _mean_point(points: Sequence[Place]) -> Place:
    return fmean(at for at, _ in points), fmean(score for _, score in points)


def _mean_curve(lines: Sequence[Sequence[Place]]) -> list[Place]:
    """Return the mean of the first evaluations of all runs, of the second ones, and so on."""
    return [_mean_point(points) for points in zip(*lines)]  # noqa: B905 - a run may have fewer


def _limit_percent(axes: Axes, estimates: Sequence[Estimate], *scores: float) -> None:
    """Show at least LEAST_POINTS. No score is below 0 or above 100 %, and the other 3 are room for its point."""
    low, high = limits(estimates, *scores, least_span=LEAST_POINTS)
    axes.set_ylim(max(low, -3.0), min(high, 103.0))


# --- speed-up against accuracy


class Gain(NamedTuple):
    """What a row gains over its ``base``, the row that it is compared with.

    ``time`` is None if no pair of runs has seconds that can be compared. It may have fewer seeds than ``points``.
    ``timed_points`` are the points of its seeds.
    """

    name: str
    base: str
    time: Estimate | None
    flops: Estimate
    points: Estimate
    timed_points: tuple[float, ...]

    @property
    def is_far(self) -> bool:
        """Whether the row loses so much that `draw_gains` shows an arrow."""
        return self.points.mean < -LARGEST_LOSS

    @property
    def words(self) -> str:
        """The entry of the row in the legend."""
        flops = f"FLOPs {self.flops.mean:.2f}×"
        ratios = f"{self.time.mean:.2f}× ({flops})" if self.time else flops
        base = "" if self.base == BASELINE else f" against {row_label(self.base)}"
        return f"{row_label(self.name)}{base}: {ratios}, {points_text(self.points.mean)} points"


def gain_of(pair: Pair) -> Gain | None:
    """Return what the row of ``pair`` gains; None if nothing can be compared."""
    if not (pair.flop_saving and pair.difference):
        return None
    points = pair.timed.difference.each if pair.timed.difference else ()
    return Gain(
        pair.own.name, pair.base.name, pair.speed_up, pair.flop_saving, pair.difference, points
    )


def gains_of(comparison: Comparison) -> list[Gain]:
    """List the gain of each row that can be compared with the baseline."""
    pairs = [comparison.pair(row) for row in comparison.compared]
    return [gain for pair in pairs if (gain := gain_of(pair))]


def draw_speed_up(
    comparison: Comparison, gains: Sequence[Gain] | None = None, margin: float | None = None
) -> PrintFigure:
    """Draw a point for each gain, over training time and over FLOPs. The default is `gains_of` the comparison.

    Small points are seeds. Bars are 95 % intervals; the panel may cut them off. A hollow point is one seed without
    an interval. Points in the tinted half are less accurate than what they are compared with. With ``margin``, a
    dashed line shows how many points a row may lose.
    """
    styles = row_styles([row.name for row in comparison.rows])
    gains = gains_of(comparison) if gains is None else gains
    # The mean is that of all seeds in both panels. The left one shows the seeds whose seconds count.
    over_time = [
        (styles[one.name], one.time, replace(one.points, each=one.timed_points))
        for one in gains
        if one.time
    ]
    over_flops = [(styles[one.name], one.flops, one.points) for one in gains]
    handles = [styles[one.name].handle(one.words) for one in gains]
    with printed():
        figure = PrintFigure(2.5)
        left, right = figure.subplots(1, 2, sharey=True)
        lowest = 0.0 if margin is None else -margin
        # The panels share their vertical axis, so its limits are those of all points. The tint below 0 needs them.
        points = [one.points for one in gains]
        left.set_ylim(*limits(points, 0.0, lowest, least_span=LEAST_POINTS))
        _draw_gains(left, over_time, styles[BASELINE], margin)
        _draw_gains(right, over_flops, styles[BASELINE], margin)
        left.set_xlabel("speed-up in training time")
        right.set_xlabel("saving of training FLOPs")
        base, words = "the baseline", "baseline"
        if any(one.base != BASELINE for one in gains):
            base, words = "another row", "the row that another is compared with"
        left.set_ylabel(f"{comparison.metric} against {base} (points)")
        figure.add_legend([styles[BASELINE].handle(words), *handles])
    return figure


def _draw_gains(
    axes: Axes,
    gains: Sequence[tuple[RowStyle, Estimate, Estimate]],
    baseline: RowStyle,
    margin: float | None,
) -> None:
    """Draw (ratio, difference) of each row around the baseline at (1, 0), and a line at −margin."""
    axes.set_xlim(*limits([ratio for _, ratio, _ in gains], 1.0))
    # The tint reaches from the lower limit to 0, and must not move this limit.
    axes.axhspan(axes.get_ylim()[0], 0, color=LOSS_COLOUR, lw=0, zorder=0)
    axes.axhline(0, color=baseline.colour, lw=0.7, zorder=1)
    axes.axvline(1, color=baseline.colour, lw=0.7, zorder=1)
    if margin is not None:
        axes.axhline(-margin, color=baseline.colour, lw=0.9, ls=(0, (4, 2)), zorder=1)
    axes.plot(1, 0, baseline.marker, ms=4.4, color=baseline.colour, zorder=3)
    for style, ratio, difference in gains:
        draw_mean(axes, ratio, difference, style)
    for height, words, aligned in ((1.0, "more accurate", "top"), (0.0, "less accurate", "bottom")):
        axes.text(
            0.99, height, words, transform=axes.transAxes, ha="right", va=aligned, color=QUIET, style="italic"
        )  # fmt: skip
    round_numbers(axes.xaxis, 6, "{:g}×".format)
    round_numbers(axes.yaxis, 6, signed)
    quiet_grid(axes)


def draw_gains(gains: Sequence[Gain], margin: float | None = None) -> PrintFigure:
    """Draw a line for each gain, for studies of MANY_ROWS: below the row that it is compared with, the best first.

    Small points are seeds. Bars are 95 % intervals; the panel may cut them off. A row that loses more than
    LARGEST_LOSS is an arrow with its number. With ``margin``, a dashed line shows how many points a row may lose.
    """
    lines: list[Gain | str] = []
    for base in dict.fromkeys(one.base for one in gains):
        own = [one for one in gains if one.base == base]
        lines += [f"against {row_label(base)}", *sorted(own, key=lambda one: -one.points.mean)]
    seeds = [value for one in gains if not one.is_far for value in one.points.each]
    with printed():
        figure = PrintFigure(0.5 + 0.16 * len(lines))
        axes = figure.subplots()
        axes.set_ylim(0.7 - len(lines), 0.7)
        axes.set_xlim(*limits([], *seeds, 0.0, -(margin or 0.0), least_span=LEAST_POINTS))
        axes.axvspan(axes.get_xlim()[0], 0, color=LOSS_COLOUR, lw=0, zorder=0)
        axes.axvline(0, color=COLOURS[BASELINE], lw=0.7, zorder=1)
        if margin is not None:
            axes.axvline(-margin, color=COLOURS[BASELINE], lw=0.9, ls=(0, (4, 2)), zorder=1)
        names = [row_label(line.name) if isinstance(line, Gain) else line for line in lines]
        axes.set_yticks([-place for place in range(len(lines))], names)
        for place, (line, label) in enumerate(zip(lines, axes.get_yticklabels(), strict=True)):
            if isinstance(line, Gain):
                _draw_gain(axes, line, -place)
            else:
                label.set_fontstyle("italic")
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("difference (points); on the right: how many times fewer training FLOPs")
        round_numbers(axes.xaxis, 8, signed)
        quiet_grid(axes, "x")
    return figure


def _draw_gain(axes: Axes, gain: Gain, height: float) -> None:
    """Draw the points of a row at ``height``, and its FLOPs at the right edge."""
    style = RowStyle(COLOURS["long"], "o")
    along = axes.get_yaxis_transform()
    if gain.is_far:
        words = f"◀ {points_text(gain.points.mean)}"
        axes.text(0.005, height, words, transform=along, va="center", color=style.colour)
    else:
        draw_mean(axes, gain.points, without_interval([height] * len(gain.points.each)), style)
    flops = f"{gain.flops.mean:.2f}×"
    axes.text(1.01, height, flops, transform=along, va="center", color=QUIET)


# --- at equal FLOPs


def draw_equal_flops(comparison: Comparison) -> PrintFigure:
    """Draw final scores over training FLOPs, and beside them what each row gains over its baseline.

    Each row is compared with the baseline of as many FLOPs and the same seed. Rows without one are left out.
    Small points are seeds, and bars are 95 % intervals. A hollow point is one seed.
    """
    styles = row_styles([row.name for row in comparison.rows])
    with printed():
        figure = PrintFigure(2.2)
        left, right = figure.subplots(1, 2)
        _draw_scores(left, comparison, styles)
        _draw_differences(right, comparison, styles)
        rows = comparison.compared_at_equal_flops
        baseline = styles[BASELINE].handle("baseline, whole and with fewer epochs", 1)
        figure.add_legend(
            [baseline, *(styles[row.name].handle(row_label(row.name)) for row in rows)]
        )
    return figure


def _draw_scores(axes: Axes, comparison: Comparison, styles: Mapping[str, RowStyle]) -> None:
    """Draw the seeds of each row and their mean over its FLOPs, and a line through the baselines."""
    baselines = [row for row in (comparison.baseline, *comparison.shorter) if row.runs]
    rows = comparison.compared_at_equal_flops
    flops = {row.name: row.mean(lambda run: run.train_flops) for row in (*baselines, *rows)}
    unit, label = flops_axis(max(flops.values()))
    baselines.sort(key=lambda row: flops[row.name])
    axes.plot(
        [flops[row.name] / unit for row in baselines],
        [fmean(row.scores) for row in baselines],
        color=COLOURS[BASELINE],
        lw=0.9,
    )
    for row in (*baselines, *rows):
        colour, marker = styles[BASELINE if row in baselines else row.name]
        at = flops[row.name] / unit
        draw_seeds(axes, [at] * len(row.scores), row.scores, colour)
        # Draw the mark of the mean in front. The seeds lie closer together than its width and would hide it.
        axes.plot(at, fmean(row.scores), marker, ms=4.4, color=colour, zorder=6)
    axes.set_xlim(left=0)
    _limit_percent(axes, [], *(score for row in (*baselines, *rows) for score in row.scores))
    axes.set_xlabel(label)
    axes.set_ylabel(f"final {comparison.metric} (%)")
    round_numbers(axes.xaxis, 5, "{:,g}".format)
    round_numbers(axes.yaxis, 5)
    quiet_grid(axes)


def _draw_differences(axes: Axes, comparison: Comparison, styles: Mapping[str, RowStyle]) -> None:
    """Draw a line for each row, the first on top: the points that it gains over the baseline of as many FLOPs."""
    pairs = map(comparison.pair_of_equal_flops, comparison.compared_at_equal_flops)
    found = {pair.own.name: pair.difference for pair in pairs if pair.difference}
    for place, (name, difference) in enumerate(found.items()):
        height = without_interval([-place] * len(difference.each))
        draw_mean(axes, difference, height, styles[name])
        axes.annotate(
            points_text(difference.mean),
            (difference.mean, -place),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            color=ink(styles[name].colour),
        )
    axes.set_xlim(*limits([*found.values()], 0.0, least_span=LEAST_POINTS))
    # There is more room above a line than below it, for the number of the line.
    axes.set_ylim(0.4 - len(found), 0.6)
    axes.axvline(0, color=COLOURS[BASELINE], lw=0.7, zorder=1)
    axes.set_yticks([-place for place in range(len(found))], [row_label(name) for name in found])
    axes.set_xlabel(f"{comparison.metric} gained at equal FLOPs (points)")
    round_numbers(axes.xaxis, 6, signed)
    quiet_grid(axes, "x")
