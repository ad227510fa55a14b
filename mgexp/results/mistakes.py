"""List the validation videos that a network got wrong with the most confidence."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from mgexp.results.load import read_predictions
from mgexp.results.model import Comparison
from mgexp.run.confusion import name_of
from mgexp.run.folder import RunsDir

NUM_MISTAKES = 5
"""The mistakes of a row. Assumption: nobody looks at more."""


class Mistake(NamedTuple):
    """What a network predicted for a validation video. ``confidence`` is its score in percent."""

    row: str
    video: str
    """Its folder and file. The rest of the path concerns only the machine."""
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
            for index in order[:NUM_MISTAKES]:
                truth, predicted = int(saved.labels[index]), int(saved.predicted[index])
                mistakes.append(
                    Mistake(
                        f"{row.name}, seed {seed}",
                        "/".join(Path(saved.videos[index]).parts[-2:]),
                        name_of(truth, names),
                        name_of(predicted, names),
                        float(confidence[index]),
                    )
                )
            break
    return mistakes
