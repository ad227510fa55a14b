"""Draw scores over FLOPs, steps and seconds, and gains and losses against a baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from matplotlib.axes import Axes

from mgexp.figures.style import (
    COLOURS,
    QUIET,
    PrintFigure,
    RowStyle,
    draw_mean,
    draw_seeds,
    flops_axis,
    limits,
    printed,
    quiet_grid,
    round_numbers,
    row_label,
    row_styles,
    signed,
    without_interval,
)
from mgexp.results.comparison import BASELINE, Comparison, Estimate, Pair
from mgexp.results.render import points_text
from mgexp.results.runs import Evaluation, Run

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


Point = tuple[float, float]
"""A place on an axis of FLOPs, steps or seconds, and a score."""
Place = Callable[[Run, Evaluation], float]
"""The place of an evaluation of a run on such an axis. NaN where it is unknown."""


def accuracy_scales(comparison: Comparison) -> dict[str, Place]:
    """Return the axes over which accuracy is drawn by their labels: FLOPs, steps and seconds."""
    timed = {run.key for run in comparison.in_usual_setting.runs}
    unit, flops_label = flops_axis(max(run.train_flops for run in comparison.runs))

    def seconds(run: Run, at: Evaluation) -> float:
        # Seconds that do not count, or of another machine than most, have no place.
        return at.train_seconds if run.key in timed else math.nan

    scales: dict[str, Place] = {
        flops_label: lambda run, at: run.flops_at(at) / unit,
        "training steps": lambda _, at: at.step,
    }
    # An axis on which only one of several rows is known compares nothing.
    if len(comparison.in_usual_setting.finished) >= min(2, len(comparison.finished)):
        scales["training time (seconds)"] = seconds
    return scales


def draw_accuracy(comparison: Comparison) -> PrintFigure:
    """Draw the evaluations during training below, and the final ones above, enlarged and with intervals."""
    scales = accuracy_scales(comparison)
    styles = row_styles([row.name for row in comparison.rows])
    with printed():
        figure = PrintFigure(3.0)
        panels = figure.subplots(2, len(scales), height_ratios=(2, 3), sharex="col", sharey="row")
        for ends, curves, (label, place) in zip(*panels, scales.items(), strict=True):
            _draw_ends(ends, comparison, place, styles)
            _draw_curves(curves, comparison, place, styles)
            curves.set_xlabel(label)
        panels[0, 0].set_ylabel(f"final {comparison.metric} (%)")
        panels[1, 0].set_ylabel(f"validation {comparison.metric} (%)")
        figure.align_ylabels(list(panels[:, 0]))
        figure.add_legend(
            [styles[row.name].handle(row_label(row.name), 1) for row in comparison.finished]
        )
    return figure


def _draw_ends(
    axes: Axes, comparison: Comparison, place: Place, styles: Mapping[str, RowStyle]
) -> None:
    """Draw the final score of each seed, and their mean with its interval."""
    finals = []
    # The control is not drawn. It ends so far below the other rows that they would all lie on one spot.
    for row in (comparison.baseline, *comparison.compared):
        ends = [place(run, run.end) for run in row.runs.values()]
        known = [at for at in ends if not math.isnan(at)]
        if final := row.score:
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
    axes: Axes, comparison: Comparison, place: Place, styles: Mapping[str, RowStyle]
) -> None:
    """Draw a thin line per seed, and its final evaluation as a small point; with MANY_ROWS, a line per row."""
    is_mean = len(comparison.finished) > MANY_ROWS
    for row in comparison.finished:
        colour = styles[row.name].colour
        lines = [line for run in row.runs.values() if (line := _curve(run, place))]
        if is_mean and lines:
            # The mean of the first evaluations of all runs, of the second ones, and so on. A run may have fewer.
            lines = [[_mean_point(points) for points in zip(*lines, strict=False)]]
        for line in lines:
            axes.plot(*zip(*line, strict=True), color=colour, lw=0.9, alpha=0.75)
        ends = [(place(run, run.end), run.score) for run in row.runs.values()]
        ends = [(at, score) for at, score in ends if not math.isnan(at)]
        for at, score in [_mean_point(ends)] if is_mean and ends else ends:
            draw_seeds(axes, [at], [score], colour)
    scores = [
        s for run in comparison.runs for s in (run.score, *(each.score for each in run.curve))
    ]
    _limit_percent(axes, [], *scores)
    axes.set_xlim(left=0)
    round_numbers(axes.xaxis, 5, "{:,.10g}".format)
    quiet_grid(axes)


def _curve(run: Run, place: Place) -> list[Point]:
    """List the evaluations during a run whose place on the axis is known."""
    # The line ends before the final point, because the final evaluation has more videos or views.
    points = [(place(run, each), each.score) for each in run.curve if not each.full_protocol]
    return [(at, score) for at, score in points if not math.isnan(at)]


def _mean_point(points: Sequence[Point]) -> Point:
    return fmean(at for at, _ in points), fmean(score for _, score in points)


def _limit_percent(axes: Axes, estimates: Sequence[Estimate], *scores: float) -> None:
    """Show at least LEAST_POINTS. No score is below 0 or above 100 %, and the other 3 are room for its point."""
    low, high = limits(estimates, *scores, least_span=LEAST_POINTS)
    axes.set_ylim(max(low, -3.0), min(high, 103.0))


# --- speed-up against accuracy


def draw_speed_up(
    comparison: Comparison, pairs: Sequence[Pair] | None = None, margin: float | None = None
) -> PrintFigure:
    """Draw a point for each pair, over training time and over FLOPs. The default are all rows with the baseline.

    With ``margin``, a dashed line shows how many points a row may lose.
    """
    styles = row_styles([row.name for row in comparison.rows])
    pairs = comparison.pairs if pairs is None else pairs
    over_time, over_flops, handles = [], [], []
    for pair in pairs:
        style, points, flops = styles[pair.own.name], pair.difference, pair.flop_saving
        if points is None or flops is None:
            continue
        handles.append(style.handle(_legend(pair, points, flops)))
        over_flops.append((style, flops, points))
        if pair.speed_up and pair.timed_alike.difference:
            # The mean is that of all seeds in both panels. The left one shows the seeds whose seconds count.
            shown = replace(points, each=pair.timed_alike.difference.each)
            over_time.append((style, pair.speed_up, shown))
    with printed():
        figure = PrintFigure(2.5)
        left, right = figure.subplots(1, 2, sharey=True)
        lowest = 0.0 if margin is None else -margin
        # The panels share their vertical axis, so its limits are those of all points. The tint below 0 needs them.
        every = [points for _, _, points in over_flops]
        left.set_ylim(*limits(every, 0.0, lowest, least_span=LEAST_POINTS))
        _draw_gains(left, over_time, styles[BASELINE], margin)
        _draw_gains(right, over_flops, styles[BASELINE], margin)
        left.set_xlabel("speed-up in training time")
        right.set_xlabel("saving of training FLOPs")
        base, words = "the baseline", "baseline"
        if any(pair.base.name != BASELINE for pair in pairs):
            base, words = "another row", "the row that another is compared with"
        left.set_ylabel(f"{comparison.metric} against {base} (points)")
        figure.add_legend([styles[BASELINE].handle(words), *handles])
    return figure


def _legend(pair: Pair, points: Estimate, flops: Estimate) -> str:
    """Write the entry of a row in the legend."""
    ratios = f"FLOPs {flops.mean:.2f}×"
    if pair.speed_up:
        ratios = f"{pair.speed_up.mean:.2f}× ({ratios})"
    base = "" if pair.base.name == BASELINE else f" against {row_label(pair.base.name)}"
    return f"{row_label(pair.own.name)}{base}: {ratios}, {points_text(points.mean)} points"


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


def draw_gains(pairs: Sequence[Pair], margin: float | None = None) -> PrintFigure:
    """Draw a line for each pair, for studies of MANY_ROWS: below the row that it is compared with, the best first.

    A row that loses more than LARGEST_LOSS is an arrow with its number. ``margin`` is as in `draw_speed_up`.
    """
    bases = dict.fromkeys(pair.base.name for pair in pairs)
    num_lines = len(bases) + len(pairs)
    differences = [pair.difference for pair in pairs if pair.difference]
    near = [points for points in differences if points.mean >= -LARGEST_LOSS]
    seeds = [value for points in near for value in points.each]
    with printed():
        figure = PrintFigure(0.5 + 0.16 * num_lines)
        axes = figure.subplots()
        axes.set_ylim(0.7 - num_lines, 0.7)
        axes.set_xlim(*limits([], *seeds, 0.0, -(margin or 0.0), least_span=LEAST_POINTS))
        axes.axvspan(axes.get_xlim()[0], 0, color=LOSS_COLOUR, lw=0, zorder=0)
        axes.axvline(0, color=COLOURS[BASELINE], lw=0.7, zorder=1)
        if margin is not None:
            axes.axvline(-margin, color=COLOURS[BASELINE], lw=0.9, ls=(0, (4, 2)), zorder=1)
        labels: list[str] = []
        headings = []
        for base in bases:
            headings.append(len(labels))
            labels.append(f"against {row_label(base)}")
            own = [pair for pair in pairs if pair.base.name == base]
            own.sort(key=lambda pair: -pair.difference.mean if pair.difference else 0.0)
            for pair in own:
                _draw_gain(axes, pair, -len(labels))
                labels.append(row_label(pair.own.name))
        axes.set_yticks([-n for n in range(num_lines)], labels)
        for number in headings:
            axes.get_yticklabels()[number].set_fontstyle("italic")
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("difference (points); on the right: how many times fewer training FLOPs")
        round_numbers(axes.xaxis, 8, signed)
        quiet_grid(axes, "x")
    return figure


def _draw_gain(axes: Axes, pair: Pair, height: float) -> None:
    """Draw the points of a row at ``height``, and its FLOPs at the right edge."""
    points, flops = pair.difference, pair.flop_saving
    if points is None or flops is None:
        return
    style = RowStyle(COLOURS["long"], "o")
    along = axes.get_yaxis_transform()
    if points.mean < -LARGEST_LOSS:
        words = f"◀ {points_text(points.mean)}"
        axes.text(0.005, height, words, transform=along, va="center", color=style.colour)
    else:
        draw_mean(axes, points, without_interval([height] * len(points.each)), style)
    axes.text(1.01, height, f"{flops.mean:.2f}×", transform=along, va="center", color=QUIET)


# --- at equal FLOPs


def draw_equal_flops(comparison: Comparison) -> PrintFigure:
    """Draw final scores over training FLOPs, and beside them what each row gains over its baseline.

    Each row is compared with the baseline of as many FLOPs and the same seed. Rows without one are left out.
    """
    styles = row_styles([row.name for row in comparison.rows])
    with printed():
        figure = PrintFigure(2.2)
        left, right = figure.subplots(1, 2)
        _draw_scores(left, comparison, styles)
        _draw_differences(right, comparison, styles)
        rows = [pair.own for pair in comparison.equal_flops]
        baseline = styles[BASELINE].handle("baseline, whole and with fewer epochs", 1)
        figure.add_legend(
            [baseline, *(styles[row.name].handle(row_label(row.name)) for row in rows)]
        )
    return figure


def _draw_scores(axes: Axes, comparison: Comparison, styles: Mapping[str, RowStyle]) -> None:
    """Draw the seeds of each row and their mean over its FLOPs, and a line through the baselines."""
    baselines = [row for row in (comparison.baseline, *comparison.shorter) if row.runs]
    rows = [pair.own for pair in comparison.equal_flops]
    flops = {row.name: row.mean("train_flops") for row in (*baselines, *rows)}
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
    pairs = comparison.equal_flops
    differences = {pair.own.name: pair.difference for pair in pairs if pair.difference}
    for place, (name, difference) in enumerate(differences.items()):
        height = without_interval([-place] * len(difference.each))
        draw_mean(axes, difference, height, styles[name])
        axes.annotate(
            points_text(difference.mean),
            (difference.mean, -place),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )
    axes.set_xlim(*limits([*differences.values()], 0.0, least_span=LEAST_POINTS))
    # There is more room above a line than below it, for the number of the line.
    axes.set_ylim(0.4 - len(differences), 0.6)
    axes.axvline(0, color=COLOURS[BASELINE], lw=0.7, zorder=1)
    axes.set_yticks(
        [-place for place in range(len(differences))], [row_label(name) for name in differences]
    )
    axes.set_xlabel(f"{comparison.metric} gained at equal FLOPs (points)")
    round_numbers(axes.xaxis, 6, signed)
    quiet_grid(axes, "x")
