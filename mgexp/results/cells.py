"""The tables of a report: a column is a heading and the text of its cell for a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, geometric_mean, stdev

from mgexp.results.compare import COARSE_CONTROL, Comparison, FinishedRun, Pairs, Row
from mgexp.results.confusion import Confusion, name_of
from mgexp.results.stats import Difference, ratio_interval

NUM_CLASSES_SHOWN = 5
"""Worst classes and most confused pairs that a report names. Assumption: more are not read."""
NONE = "–"  # no number, because a run is missing or not comparable

Cell = Callable[[Comparison, Row], str]
Number = Callable[[FinishedRun], float]


# --- numbers as text


def mean_text(values: Sequence[float], decimals: int = 0) -> str:
    """Mean, and its range over more than one value: "93.20 (92.90–93.50)"."""
    return _with_range(fmean(values), values, decimals) if values else NONE


def ratio_text(values: Sequence[float]) -> str:
    """Geometric mean, and the range of more than one value: "2.71× (2.65–2.80)"."""
    return _with_range(geometric_mean(values), values, 2, "×") if values else NONE


def deviation_text(values: Sequence[float]) -> str:
    """Mean, and standard deviation of more than one value: "96.83 ± 0.44"."""
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{fmean(values):.2f}{spread}"


def _with_range(center: float, values: Sequence[float], decimals: int, unit: str = "") -> str:
    low, high = (f"{value:,.{decimals}f}" for value in (min(values), max(values)))
    span = f" ({low}–{high})" if low != high else ""
    return f"{center:,.{decimals}f}{unit}{span}"


def points_text(value: float) -> str:
    """A signed difference of percentages: "−0.42"."""
    return f"{value:+.2f}".replace("-", "−")


def ratio_interval_text(ratios: Sequence[float]) -> str:
    """The ends of the 95 % interval of a ratio: "2.13× to 3.01×"."""
    ends = ratio_interval(ratios)
    return f"{ends[0]:.2f}× to {ends[1]:.2f}×" if ends else "needs two seeds"


def interval_text(difference: Difference | None) -> str:
    """The ends of a 95 % interval: "−1.28 to +0.41"."""
    if difference is None or difference.ends is None:
        return "needs two seeds"
    return " to ".join(map(points_text, difference.ends))


# --- cells


def _over_runs(of: Number, decimals: int = 0) -> Cell:
    return lambda _, row: mean_text([of(run) for run in row.runs.values()], decimals)


def _share(of: Number) -> Cell:
    return lambda _, row: f"{100 * fmean(of(run) for run in row.runs.values()):.1f} %"


def _share_of_program(clock: str) -> Cell:
    return _share(lambda run: run.seconds[clock] / run.seconds["program"])


def _rest_of_program(run: FinishedRun) -> float:
    counted = sum(run.seconds[name] for name in ("train", "evaluate", "precise_bn", "checkpoint"))
    return 1 - counted / run.seconds["program"]


def _speed_up(of: Number) -> Cell:
    return lambda comparison, row: ratio_text(comparison.pairs(row).ratios(of))


def _interval_of_speed_up(comparison: Comparison, row: Row) -> str:
    ratios = comparison.pairs(row).ratios(lambda run: run.result.train_seconds)
    return ratio_interval_text(ratios) if ratios else NONE


def _times_baseline(of: Number) -> Cell:
    return lambda comparison, row: ratio_text([1 / one for one in comparison.pairs(row).ratios(of)])


def _name(_: Comparison, row: Row) -> str:
    return f"{row.name} (control)" if row.name == COARSE_CONTROL else row.name


def _seeds(pairs: Pairs) -> str:
    return ", ".join(map(str, pairs.seeds)) or NONE


def _points(pairs: Pairs) -> str:
    return points_text(pairs.difference.mean) if pairs.difference else NONE


def _of_pairs(text: Callable[[Pairs], str]) -> Cell:
    return lambda comparison, row: text(comparison.pairs(row))


def _of_equal_flops(text: Callable[[Pairs], str]) -> Cell:
    return lambda comparison, row: text(comparison.pairs_of_equal_flops(row))


# --- tables; {metric} becomes top-1 or mAP

Columns = Sequence[tuple[str, Cell]]

ROW_COLUMNS: Columns = (
    ("row", _name),
    ("seeds", lambda _, row: ", ".join(map(str, row.runs))),
    ("{metric} (%)", _over_runs(lambda run: run.score, 2)),
    ("steps", _over_runs(lambda run: run.result.steps)),
    ("epochs", _over_runs(lambda run: run.result.epochs, 1)),
    ("training FLOPs (10¹²)", _over_runs(lambda run: run.result.train_flops / 1e12, 1)),
    ("training (s)", _over_runs(lambda run: run.result.train_seconds)),
    ("speed-up, FLOPs", _speed_up(lambda run: run.result.train_flops)),
    ("speed-up, wall-clock", _speed_up(lambda run: run.result.train_seconds)),
    ("steady speed-up", _speed_up(lambda run: run.result.steady_seconds)),
    ("waiting for input", _share(lambda run: run.seconds["input_wait"] / run.seconds["train"])),
)

DIFFERENCE_COLUMNS: Columns = (
    ("row", _name),
    ("seeds", _of_pairs(_seeds)),
    ("{metric} difference (points)", _of_pairs(_points)),
    ("95 % interval", _of_pairs(lambda pairs: interval_text(pairs.difference))),
    ("speed-up, 95 % interval", _interval_of_speed_up),
    ("steps", _times_baseline(lambda run: run.result.steps)),
    ("clips read", _times_baseline(lambda run: run.result.clips_seen)),
    ("steady FLOP/s", _times_baseline(lambda run: run.steady_flops_per_second)),
)

EQUAL_FLOPS_COLUMNS: Columns = (
    ("row", _name),
    ("seeds", _of_equal_flops(_seeds)),
    ("{metric} (%)", _of_equal_flops(lambda pairs: mean_text([run.score for run, _ in pairs], 2))),
    (
        "the baseline with as many FLOPs",
        _of_equal_flops(lambda pairs: mean_text([base.score for _, base in pairs], 2)),
    ),
    (
        "its epochs",
        _of_equal_flops(lambda pairs: mean_text([base.result.epochs for _, base in pairs], 1)),
    ),
    ("difference (points)", _of_equal_flops(_points)),
    ("95 % interval", _of_equal_flops(lambda pairs: interval_text(pairs.difference))),
)

TIME_COLUMNS: Columns = (
    ("row", _name),
    ("program (s)", _over_runs(lambda run: run.seconds["program"])),
    ("training", _share_of_program("train")),
    ("evaluation", _share_of_program("evaluate")),
    ("precise BN", _share_of_program("precise_bn")),
    ("checkpoints", _share_of_program("checkpoint")),
    ("start-up and the rest", _share(_rest_of_program)),
    ("first use of shapes (s)", _over_runs(lambda run: run.seconds["shape_warmup"], 1)),
)


def table(columns: Columns, comparison: Comparison, rows: Iterable[Row]) -> list[str]:
    """Lines of Markdown; none without rows."""
    headings = [heading.format(metric=comparison.metric) for heading, _ in columns]
    return markdown(headings, [[cell(comparison, row) for _, cell in columns] for row in rows])


def worst_classes(rows: Iterable[Row], names: Sequence[str]) -> list[str]:
    """The NUM_CLASSES_SHOWN classes of lowest accuracy of each row, and what they are taken for most."""
    lines = []
    for row, confusion in _with_confusion(rows):
        for score in confusion.worst(NUM_CLASSES_SHOWN):
            rivals = [pair for pair in confusion.most_confused() if pair[0] == score.label]
            lines.append(
                [
                    row.name,
                    _class(score.label, names),
                    f"{score.num_videos:,}",
                    f"{score.percent:.1f}",
                    _class(rivals[0][1], names),
                ]
            )
    return markdown(("row", "class", "videos", "accuracy (%)", "most often taken for"), lines)


def confused_pairs(rows: Iterable[Row], names: Sequence[str]) -> list[str]:
    """The NUM_CLASSES_SHOWN pairs of different classes that each row confuses most."""
    lines = []
    for row, confusion in _with_confusion(rows):
        videos = {score.label: score.num_videos for score in confusion.classes}
        for label, predicted, num in confusion.most_confused(NUM_CLASSES_SHOWN):
            pair = [_class(label, names), _class(predicted, names)]
            lines.append([row.name, *pair, f"{num:,}", f"{100 * num / videos[label]:.1f} %"])
    return markdown(("row", "class", "taken for", "videos", "of the class"), lines)


def _class(label: int, names: Sequence[str]) -> str:
    """Its name, as a cell of a table can hold it."""
    return name_of(label, names).replace("|", "\\|")


def _with_confusion(rows: Iterable[Row]) -> list[tuple[Row, Confusion]]:
    return [(row, row.confusion) for row in rows if row.confusion]


def markdown(
    headings: Sequence[str], lines: Sequence[Sequence[str]], to_the_left: Sequence[str] = ()
) -> list[str]:
    """A table; its first column and those `to_the_left` are flush left, others right. Nothing without lines."""
    if not lines:
        return []
    left = {headings[0], *to_the_left}
    rule = [":--" if heading in left else "--:" for heading in headings]
    return [f"| {' | '.join(cells)} |" for cells in (headings, rule, *lines)]
