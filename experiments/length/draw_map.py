"""Write the map of lengths, README.md beside this file, from the stored runs of the six studies and prose.md.

python experiments/length/draw_map.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, ScalarFormatter

from mgexp.config.study import read_study
from mgexp.figures.style import FAINT, QUIET, PrintFigure, printed, quiet_grid, row_label
from mgexp.results.comparison import Pair, judge_margin
from mgexp.results.render import NONE, Picture, difference_text, interval_text, split_prose
from mgexp.results.report import write_pictures
from mgexp.results.store import gather_runs
from mgexp.run.files import atomic_write_text
from mgexp.run.folder import RunsDir

HERE = Path(__file__).parent
HEAD = "<!-- draw_map.py writes this page from the stored runs of the studies and prose.md: change those. -->"
COLOURS = {3: "#0072B2", 4: "#D55E00"}
"""The colour of each set, from the palette of Okabe and Ito."""
FACTORS = (1, 4, 16)
MARKERS = {"long": "o", "long_short": "D"}
LOWEST, HIGHEST = -20.0, 20.0
"""The differences on the axis, in points. A row that loses more stands there as an arrow, and bars end there."""


@dataclass(frozen=True)
class Cell:
    """A row at one length of one set: ``whole`` against the baseline, ``equal`` against one of equal FLOPs."""

    number: int
    margin: float
    whole: Pair
    equal: Pair

    @property
    def baseline_steps(self) -> int:
        return self.whole.base.first.steps


def read_cells(folder: Path = HERE) -> list[Cell]:
    """Read the cells of the map, by set and length."""
    cells = []
    for number in COLOURS:
        for factor in FACTORS:
            study = read_study(folder / f"set{number}_x{factor}")
            gathered = gather_runs(study, lambda row, seed: ())
            equal = {pair.own.name: pair for pair in gathered.budget_pairs}
            cells += [
                Cell(number, study.margin, pair, equal[pair.own.name])
                for pair in gathered.pairs
                if pair.own.name in MARKERS
            ]
    return cells


def table(cells: Sequence[Cell]) -> Iterator[str]:
    """Write a line for each cell."""
    yield (
        "| set | steps of the baseline | row | its steps | pairs | against the baseline, in points | verdict | "
        "fewer FLOPs | less time | against a baseline of equal FLOPs |"
    )
    yield "| --: | --: | :-- | --: | --: | :-- | :-- | --: | --: | :-- |"
    for cell in cells:
        pair, equal = cell.whole, cell.equal
        ratios = (
            f"{ratio.mean:.2f}×" if ratio else NONE for ratio in (pair.flop_saving, pair.speed_up)
        )
        values = [
            f"{cell.number}",
            f"{cell.baseline_steps:,}",
            row_label(pair.own.name),
            f"{pair.own.first.steps:,}",
            f"{len(pair.runs)}",
            _points(pair),
            judge_margin(pair.difference, cell.margin),
            *ratios,
            _points(equal),
        ]
        yield f"| {' | '.join(values)} |"


def _points(pair: Pair) -> str:
    return f"{difference_text(pair.difference)} ({interval_text(pair.difference)})"


def draw(cells: Sequence[Cell]) -> Picture:
    """Draw the differences over the steps of the baseline, with 95 % intervals over the seeds."""
    with printed():
        figure = PrintFigure(2.6)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, title in zip(
            panels, ("the whole baseline", "a baseline of equal FLOPs"), strict=True
        ):
            _frame(axes, title)
        panels[0].axhline(-cells[0].margin, color=FAINT, linewidth=0.8, linestyle=":")
        panels[0].set_ylabel("top-1, points above")
        for cell in cells:
            for axes, pair in zip(panels, (cell.whole, cell.equal), strict=True):
                _mark(axes, cell, pair)
        handles = [
            *(
                Line2D([], [], color=colour, label=f"set {number}: coarse clips {what} the class")
                for (number, colour), what in zip(
                    COLOURS.items(), ("show most of", "hide a part of"), strict=True
                )
            ),
            *(
                Line2D([], [], color=QUIET, marker=marker, linestyle="", label=row_label(row))
                for row, marker in MARKERS.items()
            ),
        ]
        figure.add_legend(handles)
    alt = "the differences of the table over the steps of the baseline"
    caption = (
        "Bars are 95 % intervals over the seeds. The dotted line is the margin of the claims. "
        f"A triangle loses more than {-LOWEST:.0f} points, and bars are cut at {HIGHEST:.0f}: the table "
        'has their ends. "Less time" is the ratio of the training seconds that count.'
    )
    return Picture("map", alt, caption, figure.file("png"), figure.file("svg"))


def _frame(axes: Axes, title: str) -> None:
    axes.set_title(f"against {title}")
    axes.set_xscale("log")
    axes.set_xticks([1500, 6000, 24000])
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(1000, 36000)
    axes.set_xlabel("steps of the baseline")
    axes.axhline(0, color=QUIET, linewidth=0.8)
    quiet_grid(axes)


def _mark(axes: Axes, cell: Cell, pair: Pair) -> None:
    difference = pair.difference
    assert difference is not None and difference.interval is not None
    # The rows and sets of a length stand beside each other.
    shift = 2 * [*COLOURS].index(cell.number) + [*MARKERS].index(cell.whole.own.name)
    place = cell.baseline_steps * 1.09 ** (shift - 1.5)
    colour, is_below = COLOURS[cell.number], difference.mean < LOWEST
    marker = "v" if is_below else MARKERS[cell.whole.own.name]
    axes.plot(place, max(LOWEST, difference.mean), marker, color=colour, markersize=4)
    if not is_below:
        low, high = difference.interval
        axes.vlines(place, max(LOWEST, low), min(HIGHEST, high), color=colour, linewidth=1)


def main() -> None:
    cells = read_cells()
    title, opening, sections = split_prose((HERE / "prose.md").read_text(encoding="utf-8"))
    picture = draw(cells)
    write_pictures(RunsDir(HERE), [picture])
    the_map = ["## The map", picture.markdown.strip(), "\n".join(table(cells))]
    parts = [HEAD, title, opening, *the_map, sections]
    atomic_write_text(RunsDir(HERE).readme_md, "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
