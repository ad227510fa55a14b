"""report.md of a folder of rows: what was saved, what was lost, and how it was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from mgexp.errors import InputError
from mgexp.record.comparison import (
    BASELINE,
    COARSE_CONTROL,
    Comparison,
    Evaluation,
    FinishedRun,
    control,
    load_comparison,
    paired_difference,
)
from mgexp.record.files import atomic_write_text
from mgexp.record.plot import draw, draw_confusions
from mgexp.record.run_dir import RunsDir
from mgexp.record.tables import (
    DIFFERENCE_COLUMNS,
    NONE,
    ROW_COLUMNS,
    TIME_COLUMNS,
    confused_pairs,
    interval_text,
    markdown,
    mean_text,
    points_text,
    ratio_text,
    table,
    worst_classes,
)

MAX_CLASSES_DRAWN = 50
"""Classes of confusion.png. Assumption: the squares of more are too small to be read."""

FRAME_ORDERS = {
    "repeated": "the baseline, one frame repeated",
    "shuffled": "the baseline, frames shuffled",
}

CLOCKS = """\
- Training seconds: every training step, waiting for input and the slow first step of each shape
  included; evaluation, precise BN, checkpoints and start-up are not.
- A speed-up is the baseline's training seconds over the row's, for the same seed, device,
  precision and threads; the median over seeds is shown. The steady speed-up, without what the
  first step of each shape took longer than its second, stands beside it, never instead of it.
- Program seconds: from the start of the process to the end of the evaluation, imports included. All
  clocks go on across resumes; steps that are done again after a kill count once.
- Training FLOPs = 2 × multiply-adds of the forward pass × 3 (forward and backward) × clips.
- A number over several seeds is followed by its range in brackets. Intervals: 95 %, Student's t
  on the differences to the baseline of the same seed; they cover the seed, not the choice of
  data or recipe.
"""


def write_report(
    folder: Path, expected_rows: Sequence[str] = (), class_names: Sequence[str] = ()
) -> None:
    """Write report.md, and report.png where a run is finished, for the runs <folder>/<row>/seed<N>.

    Also confusion.png, where the runs say which of at most MAX_CLASSES_DRAWN classes they confuse.
    `expected_rows` are listed as not run where they have no run folder. `class_names`: those of the
    classes 0, 1, …; without them they are numbers. Raises InputError where a file of a run cannot be
    understood, or has more classes than there are names.
    """
    comparison = load_comparison(folder)
    _check_names(comparison, folder, class_names)
    runs = RunsDir(folder)
    if comparison.finished:
        draw(comparison, folder.name, runs.report_png)
    if comparison.confused and _num_classes(comparison) <= MAX_CLASSES_DRAWN:
        draw_confusions(comparison.confused, class_names, runs.confusion_png)
    text = render(comparison, runs, expected_rows, class_names)
    atomic_write_text(runs.report_md, text)


def _num_classes(comparison: Comparison) -> int:
    """The classes that occur in what the report shows; 0 where no run says what it confuses."""
    found = (row.confusion.num_classes for row in comparison.confused if row.confusion)
    return max(found, default=0)


def _check_names(comparison: Comparison, folder: Path, class_names: Sequence[str]) -> None:
    num_classes = _num_classes(comparison)
    if class_names and num_classes > len(class_names):
        problem = (
            f"{folder}: its runs have {num_classes} classes or more, but {len(class_names)} have"
        )
        raise InputError([f"{problem} a name: give the file of their data set, or leave it out"])


def render(
    comparison: Comparison,
    runs: RunsDir,
    expected_rows: Sequence[str] = (),
    class_names: Sequence[str] = (),
) -> str:
    """The whole report as Markdown; without a finished run, only what is missing."""
    title = runs.root.name
    missing = _section("Not in the tables", _missing(comparison, expected_rows))
    numbers = _numbers(comparison, runs, class_names) if comparison.finished else []
    how = _section("How the numbers were taken", _how(comparison)) if comparison.finished else []
    return "\n".join([f"# {title}", *numbers, *missing, *how]) + "\n"


def _numbers(comparison: Comparison, runs: RunsDir, class_names: Sequence[str]) -> list[str]:
    others = comparison.compared
    return [
        *["", f"![{comparison.metric} over training time]({runs.report_png.name})"],
        *["", *_summary(comparison)],
        *_section("Rows", table(ROW_COLUMNS, comparison, comparison.finished)),
        *_section("Against the baseline", table(DIFFERENCE_COLUMNS, comparison, others)),
        *_section("Where the time went", table(TIME_COLUMNS, comparison, comparison.finished)),
        *_section("Controls", _controls(comparison)),
        *_section("Classes", _classes(comparison, runs, class_names)),
    ]


def _classes(comparison: Comparison, runs: RunsDir, class_names: Sequence[str]) -> Iterator[str]:
    """What the baseline and the fastest row get wrong, in the final evaluations of all seeds together."""
    rows = comparison.confused
    if not rows:
        return
    if _num_classes(comparison) <= MAX_CLASSES_DRAWN:
        yield from [f"![which classes are taken for which]({runs.confusion_png.name})", ""]
    names = " and ".join(row.name for row in rows)
    yield f"Final evaluations of {names}, the seeds of a row together: the classes of lowest accuracy,"
    yield from ["and the pairs that are confused most.", ""]
    yield from worst_classes(rows, class_names) or ["Every video was taken for what it is."]
    yield from ["", *confused_pairs(rows, class_names)]


def _section(title: str, lines: Iterable[str]) -> list[str]:
    body = list(lines)
    return ["", f"## {title}", "", *body] if body else []


def _summary(comparison: Comparison) -> Iterator[str]:
    """A line for each row: the gain and the loss in one sentence."""
    for row in comparison.compared:
        difference = comparison.score_difference(row)
        if difference is None:
            yield f"- **{row.name}**: no comparable baseline run of the same seed."
            continue
        seconds = ratio_text(comparison.ratios(row, lambda run: run.result.train_seconds))
        flops = ratio_text(comparison.ratios(row, lambda run: run.result.train_flops))
        yield (
            f"- **{row.name}**: speed-up {seconds} in training time, {flops} in FLOPs; "
            f"{comparison.metric} {points_text(difference.mean)} points "
            f"(95 % interval: {interval_text(difference)})."
        )


def _controls(comparison: Comparison) -> list[str]:
    """The same network with the order of time destroyed, and one that never saw a fine clip."""
    headings = ("control", "seeds", f"{comparison.metric} (%)", "difference (points)")
    baseline = comparison.row(BASELINE).runs
    lines = []
    for order, name in FRAME_ORDERS.items():
        found = {seed: control(run, order) for seed, run in baseline.items()}
        lines.append(_control(name, {seed: _scores(pair) for seed, pair in found.items() if pair}))
    coarse = comparison.pairs(comparison.row(COARSE_CONTROL))
    scores = {run.result.seed: (run.score, base.score) for run, base in coarse}
    lines.append(_control("trained at the coarsest shape alone", scores))
    return markdown((*headings, "95 % interval"), lines)


def _scores(pair: tuple[Evaluation, Evaluation]) -> tuple[float, float]:
    return pair[0].score, pair[1].score


def _control(name: str, scores: Mapping[int, tuple[float, float]]) -> list[str]:
    """`scores` are (control, baseline) by seed."""
    difference = paired_difference([changed - plain for changed, plain in scores.values()])
    if difference is None:
        return [name, NONE, "not evaluated", NONE, NONE]
    mean = mean_text([changed for changed, _ in scores.values()], 2)
    seeds = ", ".join(map(str, scores))
    return [name, seeds, mean, points_text(difference.mean), interval_text(difference)]


def _missing(comparison: Comparison, expected_rows: Sequence[str]) -> Iterator[str]:
    """Rows and runs that are not there, and pairs that cannot be compared."""
    there = {row.name for row in comparison.rows}
    yield from (f"- {name}: not run." for name in expected_rows if name not in there)
    for row in comparison.rows:
        for seed, step in row.unfinished.items():
            last = "no step logged" if step is None else f"last logged step {step}"
            yield f"- {row.name}, seed {seed}: unfinished, {last}."
        for seed in sorted({*comparison.seeds} - {*row.runs} - {*row.unfinished}):
            yield f"- {row.name}, seed {seed}: not run."
    yield from _not_comparable(comparison)


def _not_comparable(comparison: Comparison) -> Iterator[str]:
    baseline = comparison.row(BASELINE).runs
    for row in comparison.finished:
        for seed, run in row.runs.items():
            if seed in baseline and run.setting != baseline[seed].setting:
                yield (
                    f"- {row.name}, seed {seed}: not compared with the baseline, "
                    f"{run.setting} against {baseline[seed].setting}."
                )


def _how(comparison: Comparison) -> Iterator[str]:
    """Machine, versions, protocol: every distinct value, so that a mixture shows."""
    runs = [run for row in comparison.finished for run in row.runs.values()]
    for key in ("cpu", "cores", "gpu", "threads", "torch", "torchvision", "python"):
        yield f"- {key}: {_distinct(run.environment.get(key, 'unknown') for run in runs)}"
    yield f"- device: {_distinct(run.result.device for run in runs)}"
    yield f"- precision: {_distinct(run.result.precision for run in runs)}"
    yield f"- seeds: {_distinct(run.result.seed for run in runs)}"
    yield f"- training videos: {_distinct(run.result.num_train_videos for run in runs)}"
    yield f"- final evaluation: {_protocols(runs, full_protocol=True)}"
    yield f"- evaluation during training: {_protocols(runs, full_protocol=False)}"
    yield f"- commit: {_distinct(run.result.commit for run in runs)}"
    dates = sorted(run.result.date for run in runs)
    yield f"- date: {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}"
    yield from CLOCKS.splitlines()


def _protocols(runs: Sequence[FinishedRun], *, full_protocol: bool) -> str:
    curve = (one for run in runs for one in run.curve if one.full_protocol == full_protocol)
    return _distinct(f"{one.num_videos} videos × {one.views} views" for one in curve) or "none"


def _distinct(values: Iterable[object]) -> str:
    return ", ".join(sorted({"none" if value is None else str(value) for value in values}))
