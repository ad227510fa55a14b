"""The figures of a report: which there are for what was run, and what they show in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.image import AxesImage

from mgexp.config.keys import Config
from mgexp.config.load import flatten, load_config
from mgexp.errors import InputError
from mgexp.figures.accuracy import draw_accuracy
from mgexp.figures.equal_flops import draw_equal_flops
from mgexp.figures.schedule import RowSchedule, draw_schedule
from mgexp.figures.seconds import draw_seconds
from mgexp.figures.speed_up import draw_speed_up
from mgexp.figures.style import Columns, PrintFigure, printed, row_label
from mgexp.models.build import build_network
from mgexp.models.cost import macs_by_shape, schedule_shapes
from mgexp.multigrid.schedule import Schedule
from mgexp.results.load import load_comparison
from mgexp.results.model import Comparison, Row, row_order
from mgexp.results.report import Picture, write_report
from mgexp.run.folder import RunsDir
from mgexp.train.setup import build_num_videos, build_row_schedule


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


NOT_OF_THE_NETWORK = ("MULTIGRID", "SOLVER", "ROW", "EXPECTED", "RNG_SEED")
"""Keys in which the rows of a folder differ while their networks are the same: what these cost is counted once."""

Counted = dict[tuple[object, ...], dict[tuple[int, int], int]]
"""Multiply-adds by shape, by everything else of a configuration."""


def load_results(folder: Path) -> tuple[Comparison, tuple[RowSchedule, ...]]:
    """The runs of a folder and the schedules of its rows.

    ``folder`` is what `load_comparison` takes. The YAML of a row lies in it; else the row has the configuration of
    one of its runs. Raises InputError where a file cannot be understood.
    """
    comparison = load_comparison(folder)
    yamls = {path.stem: path for path in folder.glob("*.yaml")}
    yamls = yamls or {row: run.config_yaml for row, _, run in RunsDir(folder).runs()}
    return comparison, _schedules(comparison, yamls)


def report_with_figures(
    folder: Path,
    expected_rows: Sequence[str] = (),
    class_names: Sequence[str] = (),
    output: Path | None = None,
) -> None:
    """Write report.md, report.html and figures/ into ``output``, by default ``folder``.

    ``folder`` is what `load_results` takes. ``expected_rows`` are listed as not run where they have no run.
    ``class_names`` are those of the classes 0, 1, …; without them the report has their numbers. Raises InputError
    where a file cannot be understood, or where a run has more classes than there are names.
    """
    comparison, rows = load_results(folder)
    comparison = comparison.with_class_names(class_names, folder)
    pictures = [drawn(figure) for figure in figures(comparison, rows)]
    title = folder.resolve().name
    write_report(output or folder, title, comparison, pictures, expected_rows)


def load_rows(folder: Path) -> tuple[RowSchedule, ...]:
    """The schedules of the rows of ``folder``, as `load_results` gives them."""
    return load_results(folder)[1]


def _schedules(comparison: Comparison, yamls: Mapping[str, Path]) -> tuple[RowSchedule, ...]:
    """In the order of the report; a row whose number of videos is not known is left out."""
    counted: Counted = {}
    rows = []
    for name in sorted(yamls, key=row_order):
        runs = comparison.row(name).runs.values()
        num_videos = {run.num_train_videos for run in runs}
        cfg = load_config(yamls[name])
        schedule = _schedule(name, cfg, sorted(num_videos))
        if schedule:
            rows.append(RowSchedule(name, schedule, _macs(cfg, schedule, counted)))
    return tuple(rows)


def _schedule(name: str, cfg: Config, num_videos: Sequence[int]) -> Schedule | None:
    """Over the videos that it was trained with; over those that its YAML tells of where it was not."""
    trained = num_videos[0] if num_videos else None
    count, problems = build_num_videos(cfg, trained)
    if problems or len(num_videos) > 1:
        return None
    try:
        return build_row_schedule(cfg, count)
    except InputError as error:
        raise InputError([f"{name}: {problem}" for problem in error.problems]) from error


def _macs(cfg: Config, schedule: Schedule, counted: Counted) -> dict[tuple[int, int], int]:
    """Of every shape of the schedule; those of a network that was counted before are not counted again."""
    key = tuple(
        (name, value)
        for name, value in flatten(cfg)
        if name.split(".")[0] not in NOT_OF_THE_NETWORK
    )
    known = counted.setdefault(key, {})
    new = schedule_shapes(schedule) - known.keys()
    if new:
        network = build_network(cfg).to(memory_format=torch.channels_last_3d)  # twice as fast
        known.update(macs_by_shape(network, new))
    return known


MAX_CLASSES_DRAWN = 50
"""Classes of the confusion figure. Assumption: the squares of more are too small to be read."""


@dataclass(frozen=True)
class ReportFigure:
    """A figure of a report before it is drawn; ``alt`` is for those who do not see it."""

    name: str
    alt: str
    caption: str
    draw: Callable[[Columns], PrintFigure]


def drawn(figure: ReportFigure) -> Picture:
    """Draw a figure for two columns and for one."""
    wide, narrow = figure.draw(2), figure.draw(1)
    png, wide_svg, narrow_svg = wide.file("png"), wide.file("svg"), narrow.file("svg")
    return Picture(figure.name, figure.alt, figure.caption, png, wide_svg, narrow_svg)


def figures(comparison: Comparison, rows: Sequence[RowSchedule]) -> tuple[ReportFigure, ...]:
    """All that can be drawn of the finished runs and of the schedules of the rows, in the order of the report."""
    found = _of_runs(comparison, rows) if comparison.finished else []
    if rows:
        found.append(
            ReportFigure(
                "schedule",
                "schedules of the rows, step by step",
                "Thin lines: the shapes that a phase takes in turn; thick: their mean; dotted: a new stage of the "
                "learning rate; with the long cycle the last is fine-tuning. Clips a second per TFLOP/s: what the "
                "loader must deliver while the devices train at 10¹² FLOPs a second.",
                lambda columns: draw_schedule(rows, columns),
            )
        )
    if 0 < comparison.num_classes <= MAX_CLASSES_DRAWN:
        found.append(
            ReportFigure(
                "confusion",
                "which classes are taken for which",
                "Of the videos of each class (line), how many are taken for each class (column).",
                lambda columns: draw_confusions(
                    comparison.confused, comparison.class_names, columns
                ),
            )
        )
    return tuple(found)


def _of_runs(comparison: Comparison, rows: Sequence[RowSchedule]) -> list[ReportFigure]:
    metric = comparison.metric
    found = [
        ReportFigure(
            "accuracy",
            f"{metric} over training FLOPs, steps and time",
            "Above: final evaluations, a small point per seed, their mean and its 95 % interval (hollow: one "
            "seed). Below: a line per seed, evaluations of fewer videos during training; circles: final ones.",
            lambda columns: draw_accuracy(comparison, rows, columns),
        )
    ]
    if any(comparison.pair(row).runs for row in comparison.compared):
        found.append(
            ReportFigure(
                "speed_up",
                f"speed-up against {metric}",
                "Small points: seeds, each against the baseline of the same seed. Large points: geometric mean of "
                "the ratios, mean difference. Bars: their 95 % intervals. Hollow: one seed, no interval. Tinted: "
                "less accurate than the baseline.",
                lambda columns: draw_speed_up(comparison, columns),
            )
        )
    if comparison.compared_at_equal_flops:
        found.append(
            ReportFigure(
                "equal_flops",
                f"{metric} against baselines with as many FLOPs",
                "Squares: the baseline for fewer epochs, each with the FLOPs of a row, and the whole one. Small "
                "points: seeds. Bars: 95 % intervals of the difference to the baseline with as many FLOPs and the "
                "same seed.",
                lambda columns: draw_equal_flops(comparison, columns),
            )
        )
    seconds = ReportFigure(
        "seconds",
        "seconds of each row by what they were spent on",
        "Mean seconds over seeds. In colour: the training clock; in grey: the rest of the program. Right: "
        "training FLOPs per second without the first use of shapes; points: seeds.",
        lambda columns: draw_seconds(comparison, columns),
    )
    return [*found, seconds]
