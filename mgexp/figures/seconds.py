"""Draw how each row spent its seconds, and its FLOP/s."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from mgexp.figures.style import (
    PrintFigure,
    printed,
    quiet_grid,
    round_numbers,
    round_ticks,
    row_label,
    row_styles,
    unit_of,
)
from mgexp.results.comparison import Comparison
from mgexp.results.runs import Run

BAR_INCHES = 0.27
WORDS_ROOM = 1.4
"""The width of a panel divided by the longest bar. The room beside the bar is for its words."""


class Part(NamedTuple):
    """A part of a program's seconds. The parts add up to the whole program."""

    name: str
    colour: str
    seconds: Callable[[Run], float]


# The parts that the training clock counts are coloured, and the rest of the program is grey. No row of the paper
# has one of these colours, so that nobody takes a part for a row.
PARTS = (
    Part("training steps", "#56B4E9", lambda run: run.steady_seconds - run.input_wait_seconds),
    Part("waiting for input", "#CC79A7", lambda run: run.input_wait_seconds),
    Part("first use of a shape", "#009E73", lambda run: run.shape_warmup_seconds),
    Part("evaluation", "#707070", lambda run: run.evaluate_seconds),
    Part("precise BN", "#9A9A9A", lambda run: run.precise_bn_seconds),
    Part("checkpoints", "#404040", lambda run: run.checkpoint_seconds),
    Part("start-up and the rest", "#C8C8C8", lambda run: run.rest_seconds),
)


def draw_seconds(comparison: Comparison) -> PrintFigure:
    """Draw a bar for each row: its mean seconds by part, and the range of their sum. Draw FLOP/s beside it."""
    names = [row_label(row.name) for row in comparison.finished]
    with printed():
        figure = PrintFigure(0.45 + BAR_INCHES * len(names))
        bars, rates = figure.subplots(1, 2, width_ratios=(3, 1), sharey=True)
        _draw_bars(bars, comparison)
        _draw_rates(rates, comparison)
        bars.set_yticks(range(len(names)), names, color="black")
        # The limits go from high to low, so that the first row is on top.
        bars.set_ylim(len(names) - 0.5, -0.5)
        for axes in (bars, rates):
            axes.tick_params(axis="y", length=0)
            quiet_grid(axes, "x")
        figure.add_legend([Patch(color=part.colour, label=part.name) for part in PARTS])
    return figure


def _draw_bars(axes: Axes, comparison: Comparison) -> None:
    """Draw the parts of each row's seconds one after another, and the range of the whole over the seeds."""
    for place, row in enumerate(comparison.finished):
        left = 0.0
        for part in PARTS:
            seconds = fmean(part.seconds(run) for run in row.runs.values())
            axes.barh(place, seconds, left=left, height=0.66, color=part.colour, lw=0)
            left += seconds
        ends = row.each("program_seconds")
        if len(ends) > 1:
            # The sum of the parts is rounded, so it may lie outside of two ends that are equal.
            arms = [[max(0.0, left - min(ends))], [max(0.0, max(ends) - left)]]
            axes.errorbar(
                left, place, xerr=arms,
                color="black", elinewidth=0.8, capsize=2, capthick=0.8,
            )  # fmt: skip
        training = row.mean("train_seconds")
        _write(axes, max(ends), place, f"{left:,.0f} s, training {training:,.0f} s")
    axes.set_xlabel("seconds of the program; line: range")
    longest = axes.get_xlim()[1]
    axes.set_xticks([tick for tick in round_ticks(6).tick_values(0, longest) if tick <= longest])
    axes.set_xlim(0, WORDS_ROOM * longest)


def _draw_rates(axes: Axes, comparison: Comparison) -> None:
    """Draw the steady FLOP/s. They explain why the speed-up in time differs from the saving of FLOPs."""
    styles = row_styles([row.name for row in comparison.rows])
    unit, prefix = unit_of(max(run.steady_flops_per_second for run in comparison.runs))
    for place, row in enumerate(comparison.finished):
        rates = [run.steady_flops_per_second / unit for run in row.runs.values()]
        axes.barh(place, fmean(rates), height=0.66, color=styles[row.name].colour, lw=0)
        if len(rates) > 1:
            axes.plot(rates, [place] * len(rates), "o", ms=2.4, mfc="white", mec="black", mew=0.5)
        _write(axes, max(rates), place, f"{fmean(rates):,.3g}")
    axes.set_xlabel(f"steady {prefix}FLOP/s")
    axes.set_xlim(right=1.25 * axes.get_xlim()[1])
    round_numbers(axes.xaxis, 4)


def _write(axes: Axes, at: float, place: int, words: str) -> None:
    """Write words to the right of a bar. Their distance is in points, so it does not depend on the scale."""
    axes.annotate(
        words, (at, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=6.5
    )
