"""Compute what the report on the rows of a folder shows, and write it by its template.

The page of a study has some of the same tables: their numbers are computed here too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mgexp.results.comparison import (
    COARSE_CONTROL,
    Comparison,
    Pair,
    VideoDifference,
    compare_videos,
)
from mgexp.results.estimates import Estimate, estimate_mean, is_constant
from mgexp.results.render import Picture, busy_text, distinct_text, not_compared, render_page
from mgexp.results.runs import Run, read_predictions
from mgexp.run.confusion import name_of
from mgexp.run.folder import RunsDir
from mgexp.text import counted

NUM_CLASSES_SHOWN = 5
"""The number of the worst classes, and of the most confused pairs, in a report. Assumption: nobody reads more."""

FRAME_ORDERS = {
    "repeated": "the baseline, one frame repeated",
    "shuffled": "the baseline, frames shuffled",
    "reversed": "the baseline, frames reversed",
}


def render_report(
    title: str,
    comparison: Comparison,
    pictures: Sequence[Picture] = (),
    expected_rows: Sequence[str] = (),
    mistakes: Sequence[object] = (),
    study: str = "",
) -> str:
    """Write the report as Markdown. Without a finished run, it shows only the schedules and what is missing.

    A row of ``expected_rows`` that has no run is listed as "not run". ``mistakes`` are the lines of that table.
    ``study`` is the folder of the study that has the claims, or "".
    """
    pairs = [comparison.pair(row) for row in comparison.compared]
    videos = [(pair, compare_videos(pair)) for pair in pairs]
    return render_page(
        "report.md.j2",
        pictures,
        title=title,
        study=study,
        comparison=comparison,
        pairs=pairs,
        smoke=[row.name for row in comparison.finished if any(row.each("is_smoke"))],
        verdicts=[(pair, both, _chance(pair, both)) for pair, both in videos],
        busy=busy_text(comparison.busy),
        commands=[row.first.command for row in comparison.finished if row.first.command],
        mistakes=mistakes,
        missing=[*_missing(comparison, expected_rows)],
        **shared_tables(comparison, [(pair.own.name, both) for pair, both in videos]),
    )


def shared_tables(
    comparison: Comparison,
    videos: Sequence[tuple[str, VideoDifference | None]],
    orders: Collection[str] | None = None,
    has_coarse: bool = True,
) -> dict[str, Any]:
    """Return the values of ``parts.md.j2``, which the report and the page of a study share.

    ``videos`` compares rows on single videos. ``orders`` and ``has_coarse`` are as in `list_controls`.
    """
    return {
        "metric": comparison.metric,
        "data": _data(comparison),
        "videos": [(name, difference) for name, difference in videos if difference],
        "controls": list_controls(comparison, orders, has_coarse),
        "timed_rows": comparison.timed.finished,
        "classes": list_classes(comparison),
        "how": _how(comparison.runs) if comparison.runs else [],
    }


# --- what comes first: the verdicts and the data


def _chance(pair: Pair, videos: VideoDifference | None) -> str:
    """Say whether the difference of a row to the baseline may be chance."""
    difference = pair.difference
    ends = [each.interval for each in (difference, videos) if each and each.interval]
    if difference is None or not ends:
        return "One seed, and no scores of single videos, cannot tell this from chance."
    if is_constant(difference):
        word = "All pairs are alike, as with too few or too easy test videos."
    elif any(low <= 0 <= high for low, high in ends):
        word = "An interval contains 0, so the difference may be chance."
    else:
        word = f"It is {'more' if difference.mean > 0 else 'less'} accurate than the baseline."
    return word if len(pair.runs) > 1 else f"{word} Another seed may differ."


def _data(comparison: Comparison) -> dict[str, object]:
    """Describe the data: numbers of videos and classes, what guessing scores, and what one video is worth."""
    test = sorted({num for run in comparison.runs if (num := run.num_test_videos)})
    groups = {len({*run.videos.groups}) for run in comparison.runs if run.videos} - {0}
    known = (row.confusion for row in comparison.finished if row.confusion)
    confusion = next(known, None)
    num_videos = [score.num_videos for score in confusion.classes] if confusion else []
    return {
        "train": distinct_text(f"{run.num_train_videos:,}" for run in comparison.runs),
        "test": " or ".join(f"{num:,}" for num in test),
        "points": " or ".join(f"{100 / num:.2f}" for num in test),
        "groups": " or ".join(map(str, sorted(groups))),
        "num_classes": len(num_videos),
        "guessing": 100 * max(num_videos) / sum(num_videos) if num_videos else 0.0,
    }


# --- tables


class Control(NamedTuple):
    """The scores of a control by seed, and its difference to the baseline of the same seeds."""

    name: str
    seeds: list[int]
    scores: list[float]
    difference: Estimate | None


def list_controls(
    comparison: Comparison, orders: Collection[str] | None = None, has_coarse: bool = True
) -> list[Control]:
    """List the controls: the baseline without the order of frames, and a network trained on coarse clips only.

    ``orders`` and ``has_coarse`` are the controls of a study, which are listed even before they are evaluated.
    Without ``orders``, only the controls that were evaluated are listed.
    """
    # If a control is near the baseline, the data can be classified without motion, or without training on fine
    # clips. For the name of each control: (seed, score of the control, score of the baseline).
    scores: dict[str, list[tuple[int, float, float]]] = {}
    for order, name in FRAME_ORDERS.items():
        if orders is None or order in orders:
            scores[name] = []
            for seed, run in comparison.baseline.runs.items():
                if control := run.control(order):
                    scores[name].append((seed, control[0].score, control[1].score))
    if has_coarse:
        coarse = comparison.pair(comparison.row(COARSE_CONTROL))
        scores["trained at the coarsest shape alone"] = [
            (run.seed, run.score, base.score) for run, base in coarse.runs
        ]
    return [
        Control(
            name,
            [seed for seed, _, _ in each],
            [score for _, score, _ in each],
            estimate_mean([score - plain for _, score, plain in each]),
        )
        for name, each in scores.items()
        if each or orders is not None
    ]


def list_classes(comparison: Comparison) -> Mapping[str, Any]:
    """List the worst classes and most confused pairs of the baseline and the fastest row, over all seeds."""
    names = comparison.class_names
    worst, pairs = [], []
    for row, matrix in comparison.confused:
        most = matrix.most_confused()
        for score in matrix.worst(NUM_CLASSES_SHOWN):
            rival = next(predicted for label, predicted, _ in most if label == score.label)
            worst.append((row, name_of(score.label, names), score, name_of(rival, names)))
        videos = {score.label: score.num_videos for score in matrix.classes}
        for label, predicted, num in most[:NUM_CLASSES_SHOWN]:
            share = 100 * num / videos[label]
            pairs.append((row, name_of(label, names), name_of(predicted, names), num, share))
    return {"rows": [row for row, _ in comparison.confused], "worst": worst, "pairs": pairs}


# --- below the tables


def _missing(comparison: Comparison, expected_rows: Sequence[str]) -> Iterator[str]:
    """List the rows and runs that are missing, and the runs that cannot be compared."""
    there = {row.name for row in comparison.rows}
    yield from (f"- {name}: not run." for name in expected_rows if name not in there)
    seeds = {seed for row in comparison.rows for seed in (*row.runs, *row.unfinished)}
    for row in comparison.rows:
        for seed, step in row.unfinished.items():
            last = "no step logged" if step is None else f"last logged step {step}"
            yield f"- {row.name}, seed {seed}: unfinished, {last}."
        for seed in sorted(seeds - {*row.runs} - {*row.unfinished}):
            yield f"- {row.name}, seed {seed}: not run."
    for row in comparison.finished:
        yield from not_compared(comparison.pair(row), "the baseline")


def _how(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """List machine, versions and protocol. Each line has all values that occur, so that a mixture can be seen."""
    keys = ("cpu", "cores", "gpu", "threads", "torch", "torchvision", "python")
    lines = [
        (key, distinct_text(run.environment.get(key, "unknown") for run in runs)) for key in keys
    ]
    lines += [
        ("device", distinct_text(run.device for run in runs)),
        ("precision", distinct_text(run.precision for run in runs)),
        ("seeds", distinct_text(run.seed for run in runs)),
        ("training videos", distinct_text(run.num_train_videos for run in runs)),
    ]
    for name, is_full in (("final evaluation", True), ("evaluation during training", False)):
        curve = [each for run in runs for each in run.curve if each.full_protocol == is_full]
        protocols = distinct_text(
            f"{counted(each.num_videos, 'video')} × {counted(each.views, 'view')}" for each in curve
        )
        lines.append((name, protocols or "none"))
    # All dates are in UTC and in ISO 8601, so their order as text is their order in time.
    dates = sorted(run.date for run in runs)
    ends = " to ".join(dict.fromkeys([dates[0], dates[-1]]))
    return [*lines, ("commit", distinct_text(run.commit for run in runs)), ("date", ends)]


# --- mistakes


NUM_MISTAKES = 5
"""The mistakes of a row. Assumption: nobody looks at more."""


class Mistake(NamedTuple):
    """What a network predicted for a validation video. ``confidence`` is its score in percent."""

    row: str
    video: str
    truth: str
    predicted: str
    confidence: float


def read_mistakes(folder: Path, comparison: Comparison) -> list[Mistake]:
    """List the most confident mistakes of the baseline and of the fastest row, of the first seed with scores.

    runs.jsonl has no scores, so the folders of the runs must be there.
    """
    rest = sorted(comparison.compared, key=lambda row: row.mean("train_seconds"))
    run_dirs = {(row, seed): run_dir for row, seed, run_dir in RunsDir(folder).runs()}
    names, mistakes = comparison.class_names, []
    for row in (comparison.baseline, *rest[:1]):
        for seed, run in row.runs.items():
            run_dir = run_dirs.get((row.name, seed))
            saved = run_dir and read_predictions(run_dir, run.top1)
            if not run_dir or not saved:
                continue
            sums = np.maximum(saved.scores.sum(axis=1), 1e-12)
            confidence = 100 * saved.scores.max(axis=1) / sums
            wrong = np.flatnonzero(saved.predicted != saved.labels)
            order = wrong[np.argsort(-confidence[wrong], kind="stable")]
            mistakes += [
                Mistake(
                    f"{row.name}, seed {seed}",
                    # The folder and the file. The rest of the path concerns only the machine.
                    "/".join(Path(saved.videos[index]).parts[-2:]),
                    name_of(int(saved.labels[index]), names),
                    name_of(int(saved.predicted[index]), names),
                    float(confidence[index]),
                )
                for index in order[:NUM_MISTAKES]
            ]
            break
    return mistakes
