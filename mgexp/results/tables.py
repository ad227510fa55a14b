"""Compute what the tables of a report and of the page of a study show. The templates choose how it is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from mgexp.results.comparison import (
    COARSE_CONTROL,
    Comparison,
    Pair,
    Row,
    compare_videos,
    estimate_mean,
    first_at,
    flops_to,
    seconds_to,
    speed_up_to,
)
from mgexp.results.confusion import name_of
from mgexp.results.runs import Run
from mgexp.results.store import StudyRuns, read_predictions
from mgexp.run.folder import RunsDir
from mgexp.text import counted

NUM_SHOWN = 5
"""The worst classes, the most confused pairs and the mistakes of a row. Assumption: nobody reads more."""

FRAME_ORDERS = {
    "repeated": "the baseline, one frame repeated",
    "shuffled": "the baseline, frames shuffled",
    "reversed": "the baseline, frames reversed",
}


def shared_tables(
    comparison: Comparison, pairs: Mapping[str, Pair], orders: Collection[str] | None = None
) -> dict[str, Any]:
    """Return the values of ``parts.md.j2``, which the report and the page of a study share.

    ``pairs`` are compared video by video. ``orders`` is as in `list_controls`.
    """
    return {
        "metric": comparison.metric,
        "data": _data(comparison),
        "videos": {name: both for name, pair in pairs.items() if (both := compare_videos(pair))},
        "controls": list_controls(comparison, orders),
        "timed_rows": comparison.in_usual_setting.finished,
        "classes": list_classes(comparison),
        "how": _how(comparison.runs) if comparison.runs else [],
    }


def distinct_text(values: Iterable[object]) -> str:
    """List the values that occur. Numbers are sorted by size: 2 comes before 10, and 900 before 1,000."""
    texts = {"none" if value is None else str(value) for value in values}
    is_number = {text: text.replace(",", "").isdigit() for text in texts}
    return ", ".join(sorted(texts, key=lambda text: (len(text) * is_number[text], text)))


def _data(comparison: Comparison) -> dict[str, object]:
    """Describe the data: numbers of videos and classes, what guessing scores, and what one video is worth."""
    test = sorted({num for run in comparison.runs if (num := run.num_test_videos)})
    groups = {len({*run.videos.groups}) for run in comparison.runs if run.videos} - {0}
    confusion = next((row.confusion for row in comparison.finished if row.confusion), None)
    return {
        "train": distinct_text(f"{run.num_train_videos:,}" for run in comparison.runs),
        "test": " or ".join(f"{num:,}" for num in test),
        "points": " or ".join(f"{100 / num:.2f}" for num in test),
        "groups": " or ".join(map(str, sorted(groups))),
        "num_classes": len(confusion.classes) if confusion else 0,
        "guessing": confusion.largest_percent if confusion else 0.0,
    }


def list_controls(
    comparison: Comparison, orders: Collection[str] | None = None
) -> list[dict[str, object]]:
    """List the controls: the baseline without the order of frames, and a network trained on coarse clips only.

    ``orders`` are the controls of a study, which are listed even before they are evaluated.
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
    if COARSE_CONTROL in {row.name for row in comparison.rows}:
        coarse = comparison.pair(comparison.row(COARSE_CONTROL))
        scores["trained at the coarsest shape alone"] = [
            (run.seed, run.score, base.score) for run, base in coarse.runs
        ]
    return [
        {
            "name": name,
            "seeds": [seed for seed, _, _ in each],
            "scores": [score for _, score, _ in each],
            "difference": estimate_mean([score - plain for _, score, plain in each]),
        }
        for name, each in scores.items()
        if each or orders is not None
    ]


def list_classes(comparison: Comparison) -> dict[str, Sequence[object]]:
    """List the worst classes and most confused pairs of the baseline and the fastest row, over all seeds."""
    names = comparison.class_names
    worst, pairs = [], []
    for row, matrix in comparison.confused.items():
        most = matrix.most_confused()
        for score in matrix.worst(NUM_SHOWN):
            rival = next(predicted for label, predicted, _ in most if label == score.label)
            worst.append((row, name_of(score.label, names), score, name_of(rival, names)))
        videos = {score.label: score.num_videos for score in matrix.classes}
        for label, predicted, num in most[:NUM_SHOWN]:
            share = 100 * num / videos[label]
            pairs.append((row, name_of(label, names), name_of(predicted, names), num, share))
    return {"rows": [*comparison.confused], "worst": worst, "pairs": pairs}


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


def read_mistakes(folder: Path, comparison: Comparison) -> list[dict[str, object]]:
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
            if not saved:
                continue
            sums = np.maximum(saved.scores.sum(axis=1), 1e-12)
            confidence = 100 * saved.scores.max(axis=1) / sums
            wrong = np.flatnonzero(saved.predicted != saved.labels)
            order = wrong[np.argsort(-confidence[wrong], kind="stable")]
            mistakes += [
                {
                    "row": f"{row.name}, seed {seed}",
                    # The folder and the file. The rest of the path concerns only the machine.
                    "video": "/".join(Path(saved.videos[index]).parts[-2:]),
                    "truth": name_of(int(saved.labels[index]), names),
                    "predicted": name_of(int(saved.predicted[index]), names),
                    "confidence": float(confidence[index]),
                }
                for index in order[:NUM_SHOWN]
            ]
            break
    return mistakes


# --- time to target


def time_to_target(gathered: StudyRuns, target: float) -> dict[str, object]:
    """Compute how long each row trains until it first reaches the target."""
    rows, timed = gathered.finished, gathered.comparison.in_usual_setting
    pairs = {pair.own.name: pair for pair in gathered.pairs}
    runs = [run for row in rows for run in row.runs.values()]

    def teraflops(run: Run) -> float:
        return flops_to(run, target) / 1e12

    def seconds(run: Run) -> float:
        return seconds_to(run, target)

    in_flops, in_seconds = [], []
    for row in rows:
        pair, timed_row = pairs.get(row.name), timed.row(row.name)
        in_flops.append(_cost(row, pair, teraflops))
        if timed_row.runs:
            # Seconds of several machines have no common median.
            timed_pair = pair and pair.timed_alike.only(timed_row.runs)
            in_seconds.append(_cost(timed_row, timed_pair, seconds))
    videos = {first.num_videos for run in runs if (first := first_at(run, target))}
    settings = {run.setting for run in runs if run.is_timed}
    return {
        "videos": " or ".join(f"{num:,}" for num in sorted(videos)),
        "evaluations": " or ".join(map(str, sorted({len(run.curve) for run in runs}))),
        "flops": in_flops,
        "seconds": in_seconds,
        "where": " in the setting of most of them" if len(settings) > 1 else "",
    }


def _cost(row: Row, pair: Pair | None, cost: Callable[[Run], float]) -> dict[str, object]:
    """Return what the runs of a row cost until they reach the target. ``pair`` is the row with its base."""
    costs = [cost(run) for run in row.runs.values()]
    return {
        "name": row.name,
        "reached": f"{sum(map(math.isfinite, costs))} of {len(costs)}",
        "median": median(costs),
        "least": min(costs),
        "speed_up": speed_up_to(pair, cost) if pair else None,
    }
