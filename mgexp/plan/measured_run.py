"""A prediction beside what a run took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgexp.errors import InputError
from mgexp.record.files import read_json, read_jsonl
from mgexp.record.run_dir import RunDir
from mgexp.record.text_table import aligned


@dataclass(frozen=True)
class MeasuredRun:
    """Seconds of training of a finished run, waiting included, beside the predicted ones.

    ``step_seconds``: (mini-batch, median of the logged steps) for each shape of metrics.jsonl.
    """

    name: str
    num_steps: int
    train_seconds: float
    input_wait_seconds: float
    step_seconds: Mapping[str, float]
    predicted: Mapping[str, Any]

    @property
    def ratio(self) -> float:
        """Predicted by measured seconds of training."""
        return float(self.predicted["train_seconds"]) / self.train_seconds

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "row": self.name,
            "predicted_train_seconds": self.predicted["train_seconds"],
            "measured_train_seconds": self.train_seconds,
            "ratio": self.ratio,
            "predicted_input_wait_seconds": self.predicted["input_wait_seconds"],
            "measured_input_wait_seconds": self.input_wait_seconds,
            "measured_step_seconds": dict(self.step_seconds),
        }


def measured_run(folder: Path, predictions: Sequence[Mapping[str, Any]]) -> MeasuredRun:
    """The run in ``folder`` and its prediction, on the fewest GPUs that were planned.

    Raises InputError where the run is not finished, was not planned, or took another number of steps.
    """
    run_dir = RunDir(folder)
    result = read_json(run_dir.result_json)
    name = result["experiment"]
    planned = [one for one in predictions if one["row"] == name]
    if not planned:
        names = ", ".join(sorted({str(one["row"]) for one in predictions}))
        raise InputError([f"{folder} is a run of {name}, which was not planned: {names}"])
    predicted = min(planned, key=lambda one: int(one["num_gpus"]))
    if predicted["steps"] != result["steps"]:
        raise InputError(
            [f"{folder} took {result['steps']} steps, the plan of {name} has {predicted['steps']}"]
        )
    by_shape: defaultdict[str, list[float]] = defaultdict(list)
    for line in read_jsonl(run_dir.metrics_jsonl):
        by_shape[f"{line['clips']}x{line['frames']}x{line['crop']}²"].append(line["step_seconds"])
    medians = {shape: statistics.median(values) for shape, values in by_shape.items()}
    seconds = result["seconds"]
    return MeasuredRun(
        name, result["steps"], seconds["train"], seconds["input_wait"], medians, predicted
    )


def run_table(runs: Sequence[MeasuredRun]) -> str:
    """A line per run."""
    head = ("measured run", "predicted s", "measured s", "ratio", "predicted wait", "measured wait")
    lines = [
        (
            run.name,
            f"{run.predicted['train_seconds']:.1f}",
            f"{run.train_seconds:.1f}",
            f"{run.ratio:.3f}",
            f"{run.predicted['input_wait_seconds']:.1f}",
            f"{run.input_wait_seconds:.1f}",
        )
        for run in runs
    ]
    return aligned([head, *lines])
