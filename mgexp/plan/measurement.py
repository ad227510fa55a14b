"""What was measured on a machine, as a value and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mgexp.errors import InputError
from mgexp.plan.loading import Kind
from mgexp.plan.prediction import StepCost
from mgexp.plan.step_shapes import StepShape


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
