"""The picture of bench_step.py: seconds per step and FLOP/s of each way, shape by shape."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from mgexp.figures.style import QUIET, STYLE
from mgexp.multigrid.schedule import StepShape
from mgexp.plan.tables import StepTimes
from mgexp.plan.timing import ONE_GROUP, OURS, PLAIN
from mgexp.run.files import atomic_file

COLOURS = {OURS: "#D55E00", PLAIN: "#8C8C8C", ONE_GROUP: "#56B4E9"}
LABELS = {OURS: "ours", PLAIN: "plain", ONE_GROUP: "ours, one BN group"}

BAR_ROOM = 0.8
"""Of the distance from shape to shape, what its bars fill."""


def draw_steps(times: StepTimes, title: str, path: Path) -> None:
    """Write the picture: 10 inches wide, as high as the shapes need, at 150 dots per inch."""
    height = 1.8 + 0.25 * len(times.shapes) * (len(times.ways) + 0.5)
    with mpl.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
        figure = Figure(figsize=(10, max(3.0, height)), layout=layout)
        left, right = figure.subplots(1, 2, sharey=True)
        left.set_title(f"{title}: a training step", weight="bold")
        _draw_seconds(left, times)
        right.set_title("What it computes", weight="bold")
        _draw_rates(right, times)
        # Below both, so that it hides no bar.
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4,
                      frameon=False, fontsize=9)  # fmt: skip
        with atomic_file(path) as file:
            figure.savefig(file, format="png", dpi=150)


def _draw_seconds(axes: Axes, times: StepTimes) -> None:
    """Medians, with a line from p10 to p90."""
    _draw_bars(axes, times, lambda way, shape: times.ways[way][shape].median)
    for way in times.ways:
        for shape, place in zip(times.shapes, _places(times, way), strict=True):
            timed = times.ways[way][shape]
            axes.plot([timed.p10, timed.p90], [place] * 2, color="black", lw=1)
    names = [
        f"{shape}, {shape.num_bn_groups}{' *' if shape in times.base else ''}"
        for shape in times.shapes
    ]
    axes.set_yticks(range(len(names)), names, color="black")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("seconds, median; line: p10 to p90")
    axes.set_ylabel("clips x frames x pixels², BN groups   (* base shape)")


def _draw_rates(axes: Axes, times: StepTimes) -> None:
    """GFLOP/s, how many times the plain way's they are, and a line where the measured peak is."""
    _draw_bars(axes, times, lambda way, shape: times.flops_per_second(way, shape) / 1e9)
    if times.first != PLAIN:
        _write_ratios(axes, times)
    peak = times.peak.flops_per_second / 1e9
    axes.axvline(peak, color=QUIET, lw=1, ls="--")
    axes.annotate(
        "measured peak ",
        (peak, 1),
        xycoords=("data", "axes fraction"),
        ha="right",
        va="bottom",
        color=QUIET,
        fontsize=9,
    )
    axes.set_xlim(right=1.05 * max(peak, axes.get_xlim()[1] / 1.05))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("GFLOP/s")


def _write_ratios(axes: Axes, times: StepTimes) -> None:
    """ "1.82×" at the bars of the first way; nothing where the plain way was not measured."""
    for shape, place in zip(times.shapes, _places(times, times.first), strict=True):
        ratios = times.times_faster(shape, times.first)
        axes.annotate(
            f"{median(ratios):.2f}× plain" if ratios else "",
            (times.flops_per_second(times.first, shape) / 1e9, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )


def _draw_bars(axes: Axes, times: StepTimes, value: Callable[[str, StepShape], float]) -> None:
    for way in times.ways:
        axes.barh(
            _places(times, way),
            [value(way, shape) for shape in times.shapes],
            height=0.9 * BAR_ROOM / len(times.ways),
            color=COLOURS[way],
            label=LABELS[way],
        )


def _places(times: StepTimes, way: str) -> list[float]:
    """Where the bars of a way are: around 0, 1, …, the first way on top."""
    each = BAR_ROOM / len(times.ways)
    offset = (list(times.ways).index(way) + 0.5) * each - BAR_ROOM / 2
    return [index + offset for index in range(len(times.shapes))]
