"""Define the look of every figure: palette, type, width, points with intervals, legend. Save figures."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from mgexp.results.comparison import BASELINE, COARSE_CONTROL, Estimate

# Source: Okabe & Ito, "Color Universal Design" (2008). People with any common colour blindness can distinguish
# them.
COLOURS = {BASELINE: "#404040", "short": "#E69F00", "long": "#0072B2", "long_short": "#D55E00"}
OTHER_COLOURS = ("#009E73", "#CC79A7", "#56B4E9", "#8C6D00")
CONTROL_COLOUR = "#A8A8A8"
QUIET = "#606060"
FAINT = "#909090"

OTHER_MARKERS = ("o", "D", "^", "v", "P", "X")
"""Other rows take all colours with the first marker, then all with the second, and so on: 24 different looks."""

LABELS = {"long_short": "long + short", COARSE_CONTROL: "coarse only (control)"}

SI_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))

WIDTH_INCHES = 6.875  # both columns in the CVPR author kit
DOTS_PER_INCH = 200  # of a PNG, 1,375 pixels wide, which is sharp on a web page; printers get SVG

MOST_INTERVAL = 1.5
"""How far an axis shows an interval beyond the points, as a multiple of their range (assumption). The interval of
two or three seeds can be a hundred times as wide, and then all points would lie on one spot."""

PRINT = Path(__file__).with_name("print.mplstyle")  # the style of figures in a paper


class PrintFigure(Figure):
    """A figure as wide as a page of a paper. Notebooks show it as SVG. Make it inside `printed()`."""

    def __init__(self, height_inches: float) -> None:
        layout = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03)
        super().__init__(figsize=(WIDTH_INCHES, height_inches), layout=layout)
        # Use a canvas and not pyplot, which would open windows and keep every figure in memory.
        FigureCanvasAgg(self)

    def add_legend(self, handles: Sequence[Artist]) -> None:
        """Place the legend in lines above the panels. The figure becomes higher. The panels keep their size."""
        longest = max(len(str(handle.get_label())) for handle in handles)
        # In inches at 6.5 points (measured), a letter of the default font takes 0.047 on average, a mark and the
        # space between columns take 0.4, and a line takes 0.14.
        columns = max(1, int(WIDTH_INCHES / (0.047 * longest + 0.4)))
        num_lines = math.ceil(len(handles) / columns)
        self.set_figheight(self.get_figheight() + 0.14 * num_lines + 0.1)
        self.legend(handles=handles, loc="outside upper left", ncols=math.ceil(len(handles) / num_lines),
                    handlelength=1.2, columnspacing=1.4, borderpad=0.2)  # fmt: skip

    def file(self, kind: Literal["svg", "png"]) -> bytes:
        """Return the picture as a file of that kind. The same picture always gives the same bytes."""
        # Matplotlib writes the date into SVG. With it, git would show a change in an unchanged figure.
        metadata = ("Date", "Creator", "Format", "Type")
        undated = dict.fromkeys(metadata) if kind == "svg" else None
        buffer = io.BytesIO()
        with printed():
            self.savefig(buffer, format=kind, dpi=DOTS_PER_INCH, metadata=undated)
        return buffer.getvalue() if kind == "svg" else with_few_colours(buffer)

    def _repr_svg_(self) -> str:
        return self.file("svg").decode()


def with_few_colours(png: io.BytesIO) -> bytes:
    """Write a PNG with a palette of 256 colours, which makes the file a third as large."""
    few, file = Image.open(png).convert("RGB").quantize(256, dither=Image.Dither.NONE), io.BytesIO()
    few.save(file, "png", optimize=True, dpi=(DOTS_PER_INCH, DOTS_PER_INCH))
    return file.getvalue()


printed = partial(mpl.rc_context, fname=PRINT)
"""A context with the style of print, for all figures that are made or saved inside it."""


# --- rows


class RowStyle(NamedTuple):
    """The look of a row in every figure of a folder."""

    colour: str
    marker: str

    def handle(self, label: str, line_width: float = 0) -> Line2D:
        """Make the row's entry for a legend."""
        return Line2D(
            [], [], color=self.colour, marker=self.marker, ms=4.4, lw=line_width, label=label
        )


def row_styles(names: Sequence[str]) -> dict[str, RowStyle]:
    """Give each row a colour and a marker. The rows of the paper and the control always have the same ones."""
    colours = {**COLOURS, COARSE_CONTROL: CONTROL_COLOUR}
    fixed = {name: RowStyle(colour, "o") for name, colour in colours.items()}
    fixed[BASELINE] = RowStyle(COLOURS[BASELINE], "s")
    others = [RowStyle(colour, marker) for marker in OTHER_MARKERS for colour in OTHER_COLOURS]
    names = [name for name in names if name not in fixed]
    return fixed | {name: others[place % len(others)] for place, name in enumerate(names)}


def row_label(name: str) -> str:
    return LABELS.get(name, name)


# --- points with intervals


def without_interval(values: Sequence[float]) -> Estimate:
    """Make an Estimate for numbers that get no bar, such as the FLOPs of a row."""
    return Estimate(tuple(values), fmean(values), None)


def arms(center: float, ends: Sequence[float]) -> list[list[float]]:
    """Return the arms of an error bar from the lowest to the highest of ``ends``."""
    # Rounding can put an end of equal numbers on the wrong side by 1e-16. Matplotlib refuses a negative length.
    return [[max(0.0, center - min(ends))], [max(0.0, max(ends) - center)]]


def draw_mean(axes: Axes, x: Estimate, y: Estimate, style: RowStyle) -> None:
    """Draw each seed as a small point, and their mean as a large point with its 95 % intervals.

    With one seed there is only the large point, and it is hollow.
    """
    bars = [each.interval and arms(each.mean, each.interval) for each in (x, y)]
    axes.errorbar(
        x.mean, y.mean, xerr=bars[0], yerr=bars[1], fmt=style.marker, ms=4.4, mew=1, color=style.colour,
        mfc=style.colour if any(bars) else "white", elinewidth=0.9, capsize=2, capthick=0.9, zorder=4,
    )  # fmt: skip
    # A small point would fill the hollow one.
    if any(bars):
        draw_seeds(axes, x.each, y.each, style.colour)


def draw_seeds(axes: Axes, x: Sequence[float], y: Sequence[float], colour: str) -> None:
    """Draw a small point per seed. It lies below the large point, which would otherwise look hollow."""
    axes.plot(x, y, "o", ms=3, mfc=colour, mec="white", mew=0.5, zorder=3.5)


def limits(
    estimates: Sequence[Estimate], *points: float, least_span: float = 0.5
) -> tuple[float, float]:
    """Return the ends of an axis that shows all seeds, ``points``, and intervals up to MOST_INTERVAL beyond them.

    The axis has at least a range of ``least_span``.
    """
    values: list[float] = [*points]
    ends: list[float] = []
    for estimate in estimates:
        values += estimate.each
        ends += estimate.interval or ()
    # Points that are equal have no range.
    span = max(max(values) - min(values), 0.5)
    low = max(min(values + ends), min(values) - MOST_INTERVAL * span)
    high = min(max(values + ends), max(values) + MOST_INTERVAL * span)
    more = max(0.0, least_span - (high - low)) / 2
    return low - 0.1 * span - more, high + 0.1 * span + more


# --- axes


def unit_of(largest: float) -> tuple[float, str]:
    """Choose a divisor for numbers up to ``largest``, and the prefix of the unit: (1e12, "T")."""
    fitting = [(unit, prefix) for unit, prefix in SI_PREFIXES if unit <= largest]
    return (*fitting, SI_PREFIXES[-1])[0]


def flops_axis(largest: float) -> tuple[float, str]:
    """Choose a divisor for training FLOPs up to ``largest``, and a label that names it."""
    for unit, power in ((1e18, " (10¹⁸)"), (1e12, " (10¹²)")):
        if largest >= unit:
            return unit, f"training FLOPs{power}"
    return 1.0, "training FLOPs"


def signed(value: float) -> str:
    """Format a tick of an axis of differences: "+2", "−0.5", "0"."""
    return f"{value:+g}".replace("-", "−") if abs(value) > 1e-9 else "0"


def round_numbers(axis: Axis, most: int, words: Callable[[float], str] | None = None) -> None:
    """Give an axis at most so many round ticks, and labels that ``words`` writes from their numbers."""
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    if words:
        # Matplotlib's own labels may move a common factor or offset to the end of the axis, where few people look.
        axis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))


def quiet_grid(axes: Axes, axis: Literal["x", "y", "both"] = "both") -> None:
    """Draw thin lines behind the data."""
    axes.grid(color="#E4E4E4", lw=0.5, axis=axis)
    axes.set_axisbelow(True)
