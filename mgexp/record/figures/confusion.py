"""Which classes a row takes for which."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.image import AxesImage

from mgexp.record.comparison import Row
from mgexp.record.figures.style import Columns, PrintFigure, printed, row_label


def draw_confusions(rows: Sequence[Row], names: Sequence[str], columns: Columns = 2) -> PrintFigure:
    """A square per row of the table: percent of each class (line) taken for each class (column).

    The classes are named where there are ``names``.
    """
    with printed():
        if columns == 2:
            figure = PrintFigure(2, 3.2)
            places = figure.subplots(1, len(rows), squeeze=False, sharey=True)[0]
        else:
            figure = PrintFigure(1, 0.4 + 3.0 * len(rows))
            places = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
        for axes, row in zip(places, rows, strict=True):
            picture = _draw_confusion(axes, row, names)
        places[0].set_ylabel("class")
        bar = figure.colorbar(picture, ax=list(places), shrink=0.8, aspect=30)
        bar.set_label("% of the videos of a class")
        bar.outline.set_visible(False)
        figure.settle()
    return figure


def _draw_confusion(axes: Axes, row: Row, names: Sequence[str]) -> AxesImage:
    assert row.confusion is not None  # the caller chose such rows
    matrix = row.confusion.matrix()
    # Square root: what is confused is a few percent of a class, and must be seen beside what is not.
    picture = axes.imshow(matrix, cmap="Blues", norm=PowerNorm(0.5, 0, 100))
    axes.set_title(row_label(row.name), weight="bold")
    axes.set_xlabel("taken for")
    if names:
        shown = range(len(matrix))
        axes.set_xticks(shown, names[: len(matrix)], rotation=90, fontsize=5.5)
        axes.set_yticks(shown, names[: len(matrix)], fontsize=5.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return picture
