"""Where the time went: each row's seconds by what they were spent on, and the FLOP/s that came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from matplotlib.axes import Axes

from mgexp.figures.style import (
    Columns,
    PrintFigure,
    printed,
    quiet_grid,
    round_ticks,
    row_colours,
    row_label,
)
from mgexp.results.model import Comparison, Run

BAR_INCHES = 0.27
WORDS_ROOM: dict[Columns, float] = {1: 1.75, 2: 1.4}
"""How many times as wide as the longest bar a panel is, so that words fit beside it."""
UNITS = ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"))


@dataclass(frozen=True)
class Part:
    """A kind of seconds of a program; the kinds add up to all of them."""

    name: str
    colour: str
    seconds: Callable[[Run], float]


PARTS = (
    Part("training steps", "#56B4E9", lambda run: run.steady_seconds - run.input_wait_seconds),
    Part("waiting for input", "#CC79A7", lambda run: run.input_wait_seconds),
    Part("first use of a shape", "#009E73", lambda run: run.other_seconds["shape_warmup"]),
    Part("evaluation", "#707070", lambda run: run.other_seconds["evaluate"]),
    Part("precise BN", "#9A9A9A", lambda run: run.other_seconds["precise_bn"]),
    Part("checkpoints", "#404040", lambda run: run.other_seconds["checkpoint"]),
    Part("start-up and the rest", "#C8C8C8", lambda run: run.rest_seconds),
)
"""In colour what the training clock counts, in grey the rest of the program. No colour is that of a row."""


def draw_seconds(comparison: Comparison, columns: Columns = 2) -> PrintFigure:
    """A bar per row: mean seconds over seeds by kind, with the range of their sum; beside it, FLOP/s of steps."""
    num_rows = len(comparison.finished)
    with printed():
        if columns == 2:
            figure = PrintFigure(2, 0.85 + BAR_INCHES * num_rows)
            bars, rates = figure.subplots(1, 2, width_ratios=(3, 1), sharey=True)
        else:
            figure = PrintFigure(1, 1.9 + 2 * BAR_INCHES * num_rows)
            bars, rates = figure.subplots(2, 1)
        _draw_bars(bars, comparison, WORDS_ROOM[columns])
        _draw_rates(rates, comparison)
        for axes in (bars, rates):
            _name_rows(axes, comparison)
        handles, names = bars.get_legend_handles_labels()
        figure.legend(
            handles, names, loc="outside upper left", ncols=4 if columns == 2 else 2,
            frameon=False, fontsize=6.5, handlelength=1, handleheight=1, columnspacing=1.4,
        )  # fmt: skip
        figure.settle()
    return figure


def _draw_bars(axes: Axes, comparison: Comparison, words_room: float) -> None:
    for place, row in enumerate(comparison.finished):
        runs, left = [*row.runs.values()], 0.0
        for part in PARTS:
            seconds = fmean(map(part.seconds, runs))
            label = part.name if place == 0 else None
            axes.barh(place, seconds, left=left, height=0.66, color=part.colour, lw=0, label=label)
            left += seconds
        ends = [run.program_seconds for run in runs]
        if len(ends) > 1:
            axes.errorbar(
                left, place, xerr=[[left - min(ends)], [max(ends) - left]],
                color="black", elinewidth=0.8, capsize=2, capthick=0.8,
            )  # fmt: skip
        training = fmean(run.train_seconds for run in runs)
        _write(axes, max(ends), place, f"{left:,.0f} s, training {training:,.0f} s")
    axes.set_xlabel("seconds of the program; line: range")
    longest = axes.get_xlim()[1]
    axes.set_xticks([tick for tick in round_ticks(6).tick_values(0, longest) if tick <= longest])
    axes.set_xlim(0, words_room * longest)


def _draw_rates(axes: Axes, comparison: Comparison) -> None:
    """Steady FLOP/s: why a clock gains less, or more, than the FLOPs."""
    colours = row_colours([row.name for row in comparison.rows])
    most = max(r.steady_flops_per_second for row in comparison.finished for r in row.runs.values())
    unit, name = next(one for one in UNITS if most >= one[0] or one is UNITS[-1])
    for place, row in enumerate(comparison.finished):
        rates = [run.steady_flops_per_second / unit for run in row.runs.values()]
        axes.barh(place, fmean(rates), height=0.66, color=colours[row.name], lw=0)
        if len(rates) > 1:
            axes.plot(rates, [place] * len(rates), "o", ms=2.4, mfc="white", mec="black", mew=0.5)
        _write(axes, max(rates), place, f"{fmean(rates):,.3g}")
    axes.set_xlabel(f"steady {name}")
    axes.set_xlim(right=1.25 * axes.get_xlim()[1])
    axes.xaxis.set_major_locator(round_ticks(4))


def _write(axes: Axes, at: float, place: int, words: str) -> None:
    axes.annotate(
        words, (at, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=6.5
    )


def _name_rows(axes: Axes, comparison: Comparison) -> None:
    names = [row_label(row.name) for row in comparison.finished]
    axes.set_yticks(range(len(names)), names, color="black")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.5, -0.5)
    quiet_grid(axes)
    axes.grid(False, axis="y")
