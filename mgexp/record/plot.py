"""report.png: accuracy over training time, and what each row needed for it; confusion.png: what is confused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.layout_engine import ConstrainedLayoutEngine

from mgexp.record.comparison import BASELINE, COARSE_CONTROL, Comparison, Row
from mgexp.record.files import atomic_file

# Okabe & Ito, "Color Universal Design" (2008): told apart with every common colour blindness.
COLOURS = {"baseline": "#404040", "short": "#E69F00", "long": "#0072B2", "long_short": "#D55E00"}
OTHER_COLOURS = ("#009E73", "#CC79A7", "#56B4E9", "#F0E442")
CONTROL_COLOUR = "#A8A8A8"
QUIET = "#606060"

LABELS = {"long_short": "long + short", COARSE_CONTROL: "coarse only\n(control)"}

STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#909090",
    "axes.labelcolor": QUIET,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "xtick.color": "#909090",
    "ytick.color": "#909090",
    "xtick.labelcolor": QUIET,
    "ytick.labelcolor": QUIET,
}


def draw(comparison: Comparison, title: str, path: Path) -> None:
    """Write the picture of the finished rows, 10 × 4.5 inches at 150 dots per inch."""
    with mpl.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
        figure = Figure(figsize=(10, 4.5), layout=layout)
        curves, bars = figure.subplots(1, 2, width_ratios=(3, 2))
        curves.set_title(f"{title}: {comparison.metric} over training time", weight="bold")
        bars.set_title("Training time", weight="bold")
        _draw_curves(curves, comparison)
        _draw_bars(bars, comparison)
        with atomic_file(path) as file:
            figure.savefig(file, format="png", dpi=150)


def draw_confusions(rows: Sequence[Row], names: Sequence[str], path: Path) -> None:
    """Write a square per row of the table: percent of each class (line) taken for each class (column).

    5.5 × 5 inches each at 150 dots per inch; the classes are named where there are ``names``.
    """
    with mpl.rc_context({**STYLE, "axes.spines.left": False, "axes.spines.bottom": False}):
        figure = Figure(figsize=(5.5 * len(rows), 5), layout=ConstrainedLayoutEngine(w_pad=0.12))
        places = figure.subplots(1, len(rows), squeeze=False)[0]
        for axes, row in zip(places, rows, strict=True):
            picture = _draw_confusion(axes, row, names)
        bar = figure.colorbar(picture, ax=places, shrink=0.8)
        bar.set_label("% of the videos of a class")
        with atomic_file(path) as file:
            figure.savefig(file, format="png", dpi=150)


def _draw_confusion(axes: Axes, row: Row, names: Sequence[str]) -> AxesImage:
    assert row.confusion is not None  # the caller chose such rows
    matrix = row.confusion.matrix()
    # Square root: what is confused is a few percent of a class, and must be seen beside what is not.
    picture = axes.imshow(matrix, cmap="Blues", norm=PowerNorm(0.5, 0, 100))
    axes.set_title(LABELS.get(row.name, row.name), weight="bold")
    axes.set_xlabel("taken for")
    axes.set_ylabel("class")
    if names:
        shown = range(len(matrix))
        axes.set_xticks(shown, names[: len(matrix)], rotation=90, fontsize=7)
        axes.set_yticks(shown, names[: len(matrix)], fontsize=7)
    axes.tick_params(length=0)
    return picture


def colours(comparison: Comparison) -> dict[str, str]:
    """One colour per row; the four rows of the paper always have the same."""
    others = [row.name for row in comparison.rows if row.name not in {*COLOURS, COARSE_CONTROL}]
    spare = (OTHER_COLOURS[place % len(OTHER_COLOURS)] for place in range(len(others)))
    return {**COLOURS, COARSE_CONTROL: CONTROL_COLOUR, **dict(zip(others, spare, strict=True))}


def _draw_curves(axes: Axes, comparison: Comparison) -> None:
    """A thin line per seed; a point where its final evaluation, over all videos, fell."""
    palette = colours(comparison)
    for row in comparison.finished:
        colour = palette[row.name]
        for run in row.runs.values():
            seconds = [one.train_seconds for one in run.curve]
            scores = [one.score for one in run.curve]
            axes.plot(seconds, scores, color=colour, lw=1.2, alpha=0.7, clip_on=False)
            final = (run.result.train_seconds, run.score)
            axes.plot(*final, "o", ms=7, mec="white", color=colour, clip_on=False, zorder=3)
    axes.set_xlim(left=0)
    axes.set_ylim(top=min(100.0, axes.get_ylim()[1]))
    axes.set_xlabel("training time (seconds)")
    axes.set_ylabel(f"{comparison.metric} (%)")
    axes.grid(alpha=0.3, lw=0.6)
    note = "↖ higher and further left is better\nline: one seed · point: final evaluation"
    axes.text(
        0.985,
        0.03,
        note,
        transform=axes.transAxes,
        ha="right",
        color=QUIET,
        fontsize=9,
        zorder=4,
        bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 2},
    )


def _draw_bars(axes: Axes, comparison: Comparison) -> None:
    """Mean training seconds of each row, with its speed-up and final accuracy in words."""
    palette = colours(comparison)
    for place, row in enumerate(comparison.finished):
        seconds = fmean(run.result.train_seconds for run in row.runs.values())
        axes.barh(place, seconds, color=palette[row.name], height=0.62)
        axes.annotate(
            _words(comparison, row),
            (seconds, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    names = [LABELS.get(row.name, row.name) for row in comparison.finished]
    axes.set_yticks(range(len(names)), names, color="black")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(len(names), 4) - 0.5, -0.5)  # room for four rows, so that bars stay slim
    axes.margins(x=0.45)
    axes.set_xlabel("seconds, mean over seeds")


def _words(comparison: Comparison, row: Row) -> str:
    """ "75 s · 2.7× faster" and, below it, the accuracy; no speed-up for baseline and control."""
    seconds = fmean(run.result.train_seconds for run in row.runs.values())
    score = fmean(run.score for run in row.runs.values())
    ratios = comparison.ratios(row, lambda run: run.result.train_seconds)
    shown = ratios and row.name not in {BASELINE, COARSE_CONTROL}
    return f"{seconds:,.0f} s{_speed_up(median(ratios)) if shown else ''}\n{comparison.metric} {score:.1f} %"


def _speed_up(ratio: float) -> str:
    return f" · {ratio:.1f}× faster" if ratio >= 1 else f" · {1 / ratio:.1f}× slower"
