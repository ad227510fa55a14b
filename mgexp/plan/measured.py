"""A prediction beside what a run took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mgexp.errors import InputError
from mgexp.multigrid.schedule import StepShape
from mgexp.plan.loading import Kind
from mgexp.plan.predict import StepCost
from mgexp.run.files import read_json, read_jsonl
from mgexp.run.folder import RunDir
from mgexp.text import aligned


@dataclass(frozen=True)
class Measurement:
    """Steps by shape, of one of ``num_gpus`` processes; core seconds of a clip by way of loading and kind.

    The first way is the configured one; none where there are no videos. ``seconds``: what measuring took.
    """

    steps: Mapping[StepShape, StepCost]
    loading: Mapping[str, Mapping[Kind, float]]
    gradient_bytes: int
    num_gpus: int
    num_workers: int
    num_cores: int
    device: str
    seconds: float

    @property
    def configured_loading(self) -> Mapping[Kind, float] | None:
        """Of the way in which training loads; None where it is not known."""
        return next(iter(self.loading.values()), None)

    @property
    def other_loading(self) -> dict[str, Mapping[Kind, float]]:
        """Of other ways, such as clip stores that were tried."""
        return dict([*self.loading.items()][1:])

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        steps = [{**asdict(shape), **asdict(cost)} for shape, cost in self.steps.items()]
        loading = {
            name: [
                {"frames": frames, "crop": crop, "stride_range": stride, "core_seconds": seconds}
                for (frames, crop, stride), seconds in by_kind.items()
            ]
            for name, by_kind in self.loading.items()
        }
        numbers = {
            name: getattr(self, name)
            for name in ("gradient_bytes", "num_gpus", "num_workers", "num_cores", "device")
        }
        return {"seconds": self.seconds, **numbers, "steps": steps, "loading": loading}


def measurement_of(record: Mapping[str, Any]) -> Measurement:
    """From JSON; raises InputError where something is missing."""
    try:
        return Measurement(
            steps={_shape(line): _cost(line) for line in record["steps"]},
            loading={
                name: {_kind(line): line["core_seconds"] for line in lines}
                for name, lines in record["loading"].items()
            },
            gradient_bytes=record["gradient_bytes"],
            num_gpus=record["num_gpus"],
            num_workers=record["num_workers"],
            num_cores=record["num_cores"],
            device=record["device"],
            seconds=record["seconds"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError([f"not a measurement of plan.py: {error!r}"]) from error


def _shape(line: Mapping[str, Any]) -> StepShape:
    return StepShape(line["frames"], line["crop"], line["clips"], line["num_bn_groups"])


def _cost(line: Mapping[str, Any]) -> StepCost:
    return StepCost(line["seconds"], line["core_seconds"], line["first_use_seconds"])


def _kind(line: Mapping[str, Any]) -> Kind:
    stride = line["stride_range"]
    return line["frames"], line["crop"], stride and (stride[0], stride[1])


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
