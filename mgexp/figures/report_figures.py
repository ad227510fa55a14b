"""Choose and draw the figures of a report, and describe in words what they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from matplotlib.colors import PowerNorm

from mgexp.config.study import STUDY_YAML, row_yamls
from mgexp.figures.schedule import draw_schedule
from mgexp.figures.scores import (
    MANY_ROWS,
    draw_accuracy,
    draw_equal_flops,
    draw_gains,
    draw_speed_up,
)
from mgexp.figures.style import PrintFigure, printed, row_label
from mgexp.plan.row_schedules import RowSchedule, load_schedules
from mgexp.results.comparison import Comparison, Pair, row_order
from mgexp.results.confusion import Confusion
from mgexp.results.render import Picture, render_report
from mgexp.results.report import write_report
from mgexp.results.store import load_comparison
from mgexp.results.tables import read_mistakes
from mgexp.run.folder import RUNS, RunsDir
from mgexp.text import counted

MAX_CLASSES_DRAWN = 50
"""The most classes in the confusion figure. Assumption: with more classes, its squares are too small to read."""

WORDS = yaml.safe_load(Path(__file__).with_name("captions.yaml").read_text(encoding="utf-8"))
"""For each figure: a description for readers who cannot see it, and its caption."""
WITHOUT_PLACE = (
    " A run whose seconds do not count, or that trained in another setting than most, has no place over the "
    "training time."
)


def report_with_figures(
    folder: Path,
    expected_rows: Sequence[str] = (),
    class_names: Sequence[str] = (),
    output: Path | None = None,
) -> None:
    """Write report.md, report.html and figures/ into ``output``, by default ``folder``.

    ``folder`` is as in `load_comparison`. A row of ``expected_rows`` that has no run is listed as "not run".
    ``class_names`` names the classes 0, 1, …; by default, the names that the runs keep.
    """
    comparison, rows = load_results(folder)
    comparison = comparison.with_class_names(class_names, folder)
    pictures = draw_figures(comparison, rows)
    mistakes = read_mistakes(folder, comparison)
    # The runs of a project lie in its folder runs/.
    whole = folder.resolve()
    place = whole.parent if whole.name == RUNS else whole
    study = place.name if (place / STUDY_YAML).is_file() else ""
    text = render_report(place.name, comparison, pictures, expected_rows, mistakes, study)
    write_report(RunsDir(output or folder), text, pictures)


def load_results(folder: Path) -> tuple[Comparison, tuple[RowSchedule, ...]]:
    """Load the runs of a folder and the schedules of its rows.

    The schedule of a row comes from its YAML in the folder, or else from the configuration of one of its runs.
    """
    comparison = load_comparison(folder)
    yamls = {path.stem: path for path in row_yamls(folder)}
    # All seeds of a row have the same schedule, so take any of them.
    yamls = yamls or {row: run.config_yaml for row, _, run in RunsDir(folder).runs()}
    names = sorted(yamls, key=row_order)
    rows = load_schedules({name: yamls[name] for name in names}, comparison.num_train_videos)
    return comparison, rows


def draw_figures(
    comparison: Comparison,
    rows: Sequence[RowSchedule],
    pairs: Sequence[Pair] | None = None,
    margin: float | None = None,
) -> list[Picture]:
    """Draw every figure for which the finished runs and the schedules have the numbers.

    ``pairs`` and ``margin`` are those of a study, see `draw_speed_up`.
    """
    pairs = [pair for pair in (comparison.pairs if pairs is None else pairs) if pair.runs]
    figures = {}
    if comparison.finished:
        figures["accuracy"] = draw_accuracy(comparison)
    if len(pairs) > MANY_ROWS:
        figures["gains"] = draw_gains(pairs, margin)
    elif pairs:
        figures["speed_up"] = draw_speed_up(comparison, pairs, margin)
    if comparison.equal_flops:
        figures["equal_flops"] = draw_equal_flops(comparison)
    if rows:
        figures["schedule"] = draw_schedule(rows, [row.name for row in comparison.rows])
    if 0 < comparison.num_classes <= MAX_CLASSES_DRAWN:
        figures["confusion"] = draw_confusions(comparison.confused, comparison.class_names)
    return [
        _picture(name, comparison, margin, figure.file("png"), figure.file("svg"))
        for name, figure in figures.items()
    ]


def _picture(
    name: str, comparison: Comparison, margin: float | None, png: bytes = b"", svg: bytes = b""
) -> Picture:
    """Give a figure its words."""
    is_mean = len(comparison.finished) > MANY_ROWS
    a_line = "a line per row, the mean of its seeds," if is_mean else "a line per seed"
    words = {
        kind: text.format(metric=comparison.metric, a_line=a_line)
        for kind, text in WORDS[name].items()
    }
    alt, caption = words["alt"], words["caption"]
    if name in {"speed_up", "gains"} and margin is not None:
        caption += f" The dashed line is the margin of {counted(margin, 'point')}."
    if name == "accuracy" and len(comparison.in_usual_setting.runs) < len(comparison.runs):
        caption += WITHOUT_PLACE
    return Picture(name, alt, caption, png, svg)


def drawn_before(folder: Path, comparison: Comparison, margin: float | None) -> list[Picture]:
    """List the figures that a folder has, without their contents, so that a page can link to them."""
    names = (name for name in WORDS if RunsDir(folder).figure(name, "png").exists())
    return [_picture(name, comparison, margin) for name in names]


def remove_others(folder: Path, pictures: Sequence[Picture]) -> None:
    """Remove the figures of an earlier page that ``pictures`` no longer has."""
    for name in WORDS.keys() - {picture.name for picture in pictures}:
        for kind in ("png", "svg"):
            RunsDir(folder).figure(name, kind).unlink(missing_ok=True)


def draw_confusions(rows: Mapping[str, Confusion], names: Sequence[str]) -> PrintFigure:
    """Draw a matrix for each row: the percent of the videos of a class (line) taken for each class (column)."""
    with printed():
        figure = PrintFigure(3.2)
        squares = figure.subplots(1, len(rows), squeeze=False, sharey=True)[0]
        for axes, (row, confusion) in zip(squares, rows.items(), strict=True):
            matrix = confusion.matrix()
            # A linear scale would show a few percent of confused videos as white. On the scale of the square root
            # they are visible.
            picture = axes.imshow(matrix, cmap="Blues", norm=PowerNorm(0.5, 0, 100))
            axes.set_title(row_label(row), weight="bold")
            axes.set_xlabel("taken for")
            if names:
                shown = range(len(matrix))
                axes.set_xticks(shown, names[: len(matrix)], rotation=90, fontsize=5.5)
                axes.set_yticks(shown, names[: len(matrix)], fontsize=5.5)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
        squares[0].set_ylabel("class")
        bar = figure.colorbar(picture, ax=list(squares), shrink=0.8, aspect=30)
        bar.set_label("% of the videos of a class")
        bar.outline.set_visible(False)
    return figure
