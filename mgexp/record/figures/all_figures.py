"""The figures of a report: which there are for what was run, and what they show in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mgexp.record.comparison import Comparison
from mgexp.record.figures.accuracy import draw_accuracy
from mgexp.record.figures.confusion import draw_confusions
from mgexp.record.figures.equal_flops import draw_equal_flops
from mgexp.record.figures.row_schedule import RowSchedule
from mgexp.record.figures.schedule import draw_schedule
from mgexp.record.figures.seconds import draw_seconds
from mgexp.record.figures.speed_up import draw_speed_up
from mgexp.record.figures.style import Columns, PrintFigure

MAX_CLASSES_DRAWN = 50
"""Classes of the confusion figure. Assumption: the squares of more are too small to be read."""


@dataclass(frozen=True)
class Picture:
    """A figure of a report; ``alt`` is for those who do not see it."""

    name: str
    alt: str
    caption: str
    draw: Callable[[Columns], PrintFigure]


def num_classes(comparison: Comparison) -> int:
    """The classes that occur in what the report shows; 0 where no run says what it confuses."""
    found = (row.confusion.num_classes for row in comparison.confused if row.confusion)
    return max(found, default=0)


def pictures(
    comparison: Comparison, rows: Sequence[RowSchedule], class_names: Sequence[str] = ()
) -> tuple[Picture, ...]:
    """All that can be drawn of the finished runs and of the schedules of the rows, in the order of the report."""
    found = _of_runs(comparison, rows) if comparison.finished else []
    if rows:
        found.append(
            Picture(
                "schedule",
                "schedules of the rows, step by step",
                "Thin lines: the shapes that a phase takes in turn; thick: their mean; dotted: a new stage of the "
                "learning rate; with the long cycle the last is fine-tuning. Clips a second per TFLOP/s: what the "
                "loader must deliver while the devices train at 10¹² FLOPs a second.",
                lambda columns: draw_schedule(rows, columns),
            )
        )
    if 0 < num_classes(comparison) <= MAX_CLASSES_DRAWN:
        found.append(
            Picture(
                "confusion",
                "which classes are taken for which",
                "Of the videos of each class (line), how many are taken for each class (column).",
                lambda columns: draw_confusions(comparison.confused, class_names, columns),
            )
        )
    return tuple(found)


def _of_runs(comparison: Comparison, rows: Sequence[RowSchedule]) -> list[Picture]:
    metric = comparison.metric
    found = [
        Picture(
            "accuracy",
            f"{metric} over training FLOPs, steps and time",
            "Above: final evaluations, a small point per seed, their mean and its 95 % interval (hollow: one "
            "seed). Below: a line per seed, evaluations of fewer videos during training; circles: final ones.",
            lambda columns: draw_accuracy(comparison, rows, columns),
        )
    ]
    if any(comparison.pairs(row) for row in comparison.compared):
        found.append(
            Picture(
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
            Picture(
                "equal_flops",
                f"{metric} against baselines with as many FLOPs",
                "Squares: the baseline for fewer epochs, each with the FLOPs of a row, and the whole one. Small "
                "points: seeds. Bars: 95 % intervals of the difference to the baseline with as many FLOPs and the "
                "same seed.",
                lambda columns: draw_equal_flops(comparison, columns),
            )
        )
    seconds = Picture(
        "seconds",
        "seconds of each row by what they were spent on",
        "Mean seconds over seeds. In colour: the training clock; in grey: the rest of the program. Right: "
        "training FLOPs per second without the first use of shapes; points: seeds.",
        lambda columns: draw_seconds(comparison, columns),
    )
    return [*found, seconds]
