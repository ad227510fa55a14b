"""How every figure looks: one palette, one size of type, the widths of printed columns; and how it is saved."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from mgexp.results.model import COARSE_CONTROL

# Okabe & Ito, "Color Universal Design" (2008): told apart with every common colour blindness.
COLOURS = {"baseline": "#404040", "short": "#E69F00", "long": "#0072B2", "long_short": "#D55E00"}
OTHER_COLOURS = ("#009E73", "#CC79A7", "#56B4E9", "#8C6D00")
CONTROL_COLOUR = "#A8A8A8"
QUIET = "#606060"
FAINT = "#909090"

FLOPS_UNITS = ((1e18, " (10¹⁸)"), (1e12, " (10¹²)"), (1.0, ""))

LABELS = {"long_short": "long + short", COARSE_CONTROL: "coarse only (control)"}

Columns = Literal[1, 2]
Kind = Literal["svg", "pdf", "png"]
WIDTH_INCHES: dict[Columns, float] = {1: 3.25, 2: 6.875}
"""Of one column and of both, in the CVPR author kit."""
DOTS_PER_INCH = 200
"""Of a PNG: 1,375 pixels for two columns. Assumption: sharp on a web page; print takes the SVG or PDF."""

STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": QUIET,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": QUIET,
    "ytick.labelcolor": QUIET,
}
"""On screens, 10 inches wide."""

PRINT: dict[Any, Any] = {
    **STYLE,
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.titlepad": 5,
    "axes.labelsize": 7,
    "axes.labelpad": 2.5,
    "axes.linewidth": 0.6,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.pad": 2,
    "ytick.major.pad": 2,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "lines.linewidth": 1.1,
    "svg.hashsalt": "mgexp",  # the same picture is the same file
    "pdf.fonttype": 42,  # TrueType, as printers ask
}
"""In the columns of a paper."""


class PrintFigure(Figure):
    """A figure of one or two columns; notebooks show it as SVG. Make it inside `printed()`."""

    def __init__(self, columns: Columns, height_inches: float) -> None:
        layout = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03)
        super().__init__(figsize=(WIDTH_INCHES[columns], height_inches), layout=layout)
        FigureCanvasAgg(self)

    def settle(self) -> None:
        """Lay everything out and keep it so: what is measured after this stays where it is."""
        self.draw_without_rendering()
        self.set_layout_engine("none")

    def file(self, kind: Kind) -> bytes:
        """The picture as a file of that kind; the same picture gives the same bytes."""
        undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
        buffer = io.BytesIO()
        with printed():
            self.savefig(buffer, format=kind, dpi=DOTS_PER_INCH, metadata=undated.get(kind))
        return buffer.getvalue()

    def _repr_svg_(self) -> str:
        return self.file("svg").decode()


@contextmanager
def printed() -> Iterator[None]:
    """Inside, figures are made and saved in the style of print."""
    with mpl.rc_context(PRINT):
        yield


def row_colours(names: Sequence[str]) -> dict[str, str]:
    """One colour per row; the four rows of the paper and the control always have the same."""
    fixed = {**COLOURS, COARSE_CONTROL: CONTROL_COLOUR}
    others = [name for name in names if name not in fixed]
    spare = (OTHER_COLOURS[place % len(OTHER_COLOURS)] for place in range(len(others)))
    return {**fixed, **dict(zip(others, spare, strict=True))}


def ink(colour: str) -> str:
    """The colour for words on white: as dark as it takes to be read (a contrast of 4.5, WCAG 2.2)."""
    red, green, blue = to_rgb(colour)
    while 1.05 / (_luminance(red, green, blue) + 0.05) < 4.5:
        red, green, blue = 0.95 * red, 0.95 * green, 0.95 * blue
    return to_hex((red, green, blue))


def _luminance(*channels: float) -> float:
    """Relative luminance of sRGB, as WCAG 2.2 defines it."""
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return sum(part * one for part, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def row_label(name: str) -> str:
    """A row as people say it."""
    return LABELS.get(name, name)


def signed(value: float, _: object = None) -> str:
    """A tick of an axis of differences: "+2", "−0.5", "0"."""
    return f"{value:+g}".replace("-", "−") if abs(value) > 1e-9 else "0"


def flops_unit(most: float) -> tuple[float, str]:
    """What FLOPs up to ``most`` are divided by on an axis, and how its name ends: (1e12, " (10¹²)")."""
    return next(one for one in FLOPS_UNITS if most >= one[0] or one is FLOPS_UNITS[-1])


def round_ticks(most: int) -> MaxNLocator:
    """At most so many intervals between ticks, of 1, 2, 2.5 or 5 times a power of ten."""
    return MaxNLocator(most, steps=[1, 2, 2.5, 5, 10])


def draw_center(
    axes: Axes,
    at: tuple[float, float],
    colour: str,
    size: float,
    across: list[list[float]] | None = None,
    up: float | None = None,
) -> None:
    """A large point with its 95 % intervals, ``up`` the half width; hollow without one, as of one seed."""
    axes.errorbar(
        *at,
        xerr=across,
        yerr=up,
        fmt="o",
        ms=size,
        color=colour,
        mfc="white" if up is None and across is None else colour,
        mew=1,
        elinewidth=0.9,
        capsize=2,
        capthick=0.9,
        zorder=4,
    )


def draw_seeds(axes: Axes, x: Sequence[float], y: Sequence[float], colour: str) -> None:
    """A small point per seed, edged in white to be seen before the large one."""
    axes.plot(x, y, "o", ms=3, mfc=colour, mec="white", mew=0.5, zorder=5)


def reach(
    points: Sequence[float], ends: Sequence[float], most: float
) -> tuple[float, float, float]:
    """From where to where an axis shows ``points`` and the ``ends`` of their intervals, and what the points span.

    Intervals are shown up to ``most`` spans beyond the points, so that they do not dwarf them. A span is half a
    unit at least.
    """
    span = max(max(points) - min(points), 0.5)
    low = max(min([*points, *ends]), min(points) - most * span)
    high = min(max([*points, *ends]), max(points) + most * span)
    return low, high, span


def quiet_grid(axes: Axes) -> None:
    """Thin lines behind what is drawn."""
    axes.grid(color="#E4E4E4", lw=0.5)
    axes.set_axisbelow(True)
