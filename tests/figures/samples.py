"""Runs and rows with numbers chosen by hand, and what is asked of every figure."""

from __future__ import annotations

from itertools import combinations

from matplotlib.text import Text
from matplotlib.transforms import Bbox

from mgexp.multigrid.recipe import LONG_SHORT, Multigrid, Recipe
from mgexp.multigrid.schedule import build_schedule
from mgexp.plan.row_schedules import RowSchedule
from mgexp.results.model import Comparison, Evaluation, Row, Run, row_order

RECIPE = Recipe(
    clips=8,
    frames=16,
    crop=64,
    stride=2,
    jitter=(64, 80),
    base_lr=0.1,
    stage_epochs=(0, 6, 8),
    max_epoch=10,
    warmup_epochs=1,
    warmup_start_lr=0.01,
)
SHAPES = [(t, s) for t in (4, 8, 16) for s in (32, 45, 64)]
MACS = {(t, s): 1000 * t * s**2 for t, s in SHAPES}
"""As if a network took 1,000 multiply-adds a pixel."""


def row_schedule(name="long_short", multigrid: Multigrid = LONG_SHORT) -> RowSchedule:
    return RowSchedule(name, build_schedule(RECIPE, multigrid, num_videos=1200), MACS)


def run(
    row: str,
    seed: int = 0,
    *,
    top1: float = 97.0,
    seconds: float = 100.0,
    flops: float = 1e13,
    steps: int = 1000,
    curve: tuple[tuple[int, float, float], ...] = (),
) -> Run:
    """`curve` is (step, train seconds, top-1) during training."""
    during = [
        Evaluation(step, at, score, 1, 60, False, "forward", round(flops * step / steps))
        for step, at, score in curve
    ]
    end = Evaluation(steps, seconds, top1, 1, 1200, True, "forward")
    return Run(
        *(f"quickstart/{row}", row, seed, top1, 99.0, None, steps, 10.0, 12_000, flops),
        *(seconds, seconds - 1, 5.0, seconds + 30),
        *("CPU", "fp32", 1200, "c0ffee", "2026-11-21T12:00:00+00:00"),
        *(12.0, 8.0, 1.0, 1.0),
        {"threads": 2},
        (*during, end),
    )


def comparison(*runs: Run) -> Comparison:
    names = sorted({one.row for one in runs}, key=row_order)
    of = {name: {r.seed: r for r in runs if r.row == name} for name in names}
    return Comparison(tuple(Row(name, of[name], {}) for name in names))


def quickstart() -> Comparison:
    """Like the real ones: five rows, three seeds of two of them."""

    def three_seeds(row, scores, steps, flops, seconds, shape):
        """The curve has (share of the steps, top-1) at a share of the seconds."""
        for seed, top1 in enumerate(scores):
            curve = [(round(steps * at), seconds * at, score) for at, score in shape]
            kind = {"seconds": seconds + 10.0 * seed, "flops": flops, "steps": steps}
            yield run(row, seed, top1=top1, **kind, curve=tuple(curve))

    shape = ((0.25, 50.0), (0.5, 93.0), (0.75, 98.3))
    return comparison(
        *three_seeds("baseline", (97.75, 98.0, 98.25), 1500, 1.85e13, 220.0, shape),
        *three_seeds("long_short", (97.17, 97.0, 96.33), 428, 5.76e12, 81.0, shape),
        run("short", top1=97.33, seconds=153.0, flops=1.266e13, steps=964),
        run("long", top1=97.58, seconds=144.0, flops=9.03e12, steps=677),
        run("coarse", top1=48.25, seconds=48.0, flops=2.75e12, steps=375),
    )


def written(figure) -> list[tuple[str, Bbox]]:
    """The words of a figure and the pixels of each, tick labels included."""
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    texts = [one for one in figure.findobj(Text) if one.get_visible() and one.get_text().strip()]
    ticks = {t for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for t in beyond(axis)}
    return [(t.get_text(), Text.get_window_extent(t, renderer)) for t in texts if t not in ticks]


def named(figure) -> dict[str, tuple[str, str]]:
    """The names of a legend, each with the colour and the marker of its row."""
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    marks = [(one.get_color(), one.get_marker()) for one in legend.legend_handles]
    return dict(zip(names, marks, strict=True))


def beyond(axis) -> set[Text]:
    """Labels of ticks outside the limits, which matplotlib makes and does not draw."""
    low, high = sorted(axis.get_view_interval())
    slack = 1e-9 * (high - low)
    ticks = (*axis.get_major_ticks(), *axis.get_minor_ticks())
    out = [tick for tick in ticks if not low - slack <= tick.get_loc() <= high + slack]
    return {label for tick in out for label in (tick.label1, tick.label2)}


def overlaps(figure) -> list[tuple[str, str]]:
    """Pairs of words that cover each other."""
    return [
        (one, other)
        for (one, first), (other, second) in combinations(written(figure), 2)
        if (shared := Bbox.intersection(first, second)) and shared.width * shared.height > 1
    ]


def outside(figure) -> list[str]:
    """Words that the edge of the figure cuts."""
    edge = figure.bbox.padded(1)
    return [
        text
        for text, box in written(figure)
        if not (edge.contains(*box.min) and edge.contains(*box.max))
    ]
