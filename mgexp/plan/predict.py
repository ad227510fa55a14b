"""How long a row will take, and what binds it: from the time of its steps, of loading and of communication.

The model of a step, in seconds (all of one process; L: core seconds of loading its clips):

    training = compute + what communication adds
    step     = max(training, L / workers, (core seconds of compute + L) / cores)

Workers load while the process trains. On a CPU they share its cores and yield to it, so that loading takes the
time that training leaves idle (third term); beside a GPU that term rarely matters. Without workers, loading and
training take turns. A short cycle's cheap and dear steps even out, since batches are kept ready: means over the
cycle count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mgexp.multigrid.schedule import Schedule, StepShape
from mgexp.plan.communication import Communication
from mgexp.plan.loading import Kind, Leg, legs_of

COMPUTE, LOADING, COMMUNICATION = "compute", "loading", "communication"


@dataclass(frozen=True)
class StepCost:
    """A training step of one process with nothing beside it, its clips at hand.

    ``core_seconds``: processor time of all its threads. ``first_use_seconds``: what the first step of the shape
    took longer.
    """

    seconds: float
    core_seconds: float
    first_use_seconds: float = 0.0

    def scaled(self, factor: float) -> StepCost:
        """Of ``factor`` times the clips, if it is in proportion (an assumption)."""
        return StepCost(self.seconds * factor, self.core_seconds * factor, self.first_use_seconds)


@dataclass(frozen=True)
class Resources:
    """Of one process: its loader workers, and the cores that it and they share."""

    num_workers: int
    num_cores: int

    def __post_init__(self) -> None:
        if self.num_workers < 0 or self.num_cores < 1:
            raise ValueError(
                f"a process has 0 workers or more and a core or more, not {self.num_workers} and {self.num_cores}"
            )


@dataclass(frozen=True)
class Balance:
    """A mean step of one process, in seconds; ``loading_core_seconds`` is None where loading is not known."""

    compute: float
    compute_core_seconds: float
    communication: float
    exposed: float
    loading_core_seconds: float | None
    resources: Resources

    @property
    def training(self) -> float:
        """The step where its clips are always at hand."""
        return self.compute + self.exposed

    @property
    def loading(self) -> float:
        """How long the next clips take, beside training; 0 where loading is not known."""
        core_seconds, workers = self.loading_core_seconds or 0.0, self.resources.num_workers
        if not core_seconds:
            return 0.0
        if not workers:
            return self.training + core_seconds
        shared = (self.compute_core_seconds + core_seconds) / self.resources.num_cores
        return max(core_seconds / workers, shared)

    @property
    def wall(self) -> float:
        """The step."""
        return max(self.training, self.loading)

    @property
    def waiting(self) -> float:
        """How much of the step training waits for clips."""
        return self.wall - self.training

    @property
    def binds(self) -> str:
        """What would shorten the step most if it took no time: compute, loading or communication."""
        without = {
            COMPUTE: replace(self, compute=0.0, compute_core_seconds=0.0),
            LOADING: replace(self, loading_core_seconds=None),
            COMMUNICATION: replace(self, communication=0.0, exposed=0.0),
        }
        return min(without, key=lambda name: without[name].wall)

    def workers_to_unbind(self) -> int | None:
        """Fewest workers with which training never waits; None where the cores do not suffice for any number."""
        loading = self.loading_core_seconds or 0.0
        needed = math.ceil(loading / self.training - 1e-9)
        enough = replace(self, resources=replace(self.resources, num_workers=needed))
        return needed if enough.waiting <= 1e-9 else None

    def cores_to_unbind(self) -> int:
        """Fewest cores with which enough workers keep up."""
        busy = self.compute_core_seconds + (self.loading_core_seconds or 0.0)
        return max(1, math.ceil(busy / self.training - 1e-9))


@dataclass(frozen=True)
class LegPrediction:
    """The phases of one cycle of shapes. ``spans_processes``: BN groups do; their messages are not modelled."""

    leg: Leg
    shapes: tuple[StepShape, ...]
    balance: Balance
    spans_processes: bool

    @property
    def seconds(self) -> float:
        """Of all its steps."""
        return self.leg.num_steps * self.balance.wall


@dataclass(frozen=True)
class RowPrediction:
    """A row on ``num_gpus`` GPUs (or processes); ``first_use_seconds`` and ``start_seconds`` come once."""

    name: str
    num_gpus: int
    num_steps: int
    legs: tuple[LegPrediction, ...]
    first_use_seconds: float
    start_seconds: float

    @property
    def seconds(self) -> float:
        """Of training, the wait for input and the first use of shapes included."""
        steps = sum(leg.seconds for leg in self.legs)
        return steps + self.first_use_seconds + self.start_seconds

    @property
    def waiting_seconds(self) -> float:
        """Of waiting for clips."""
        waits = sum(leg.leg.num_steps * leg.balance.waiting for leg in self.legs)
        return waits + self.start_seconds


def leg_shapes(schedule: Schedule, num_processes: int) -> list[tuple[Leg, tuple[StepShape, ...]]]:
    """Each leg with the mini-batches of one process, in the order of its cycle."""
    groups = {phase.cycle: phase.num_bn_groups for phase in schedule.phases}
    clips = schedule.recipe.clips
    return [
        (
            leg,
            tuple(
                StepShape(
                    shape.frames,
                    shape.crop,
                    clips * shape.ratio // num_processes,
                    groups[leg.cycle],
                )
                for shape in leg.cycle.shapes
            ),
        )
        for leg in legs_of(schedule)
    ]


def predict(
    name: str,
    schedule: Schedule,
    steps: Mapping[StepShape, StepCost],
    loading: Mapping[Kind, float] | None,
    resources: Resources,
    communication: Communication,
    num_gpus: int = 1,
) -> RowPrediction:
    """What ``schedule``, made for ``num_gpus`` processes, will take. ``loading``: core seconds of a clip.

    Raises ValueError where a shape was not measured with any number of clips.
    """
    legs = []
    used: dict[StepShape, StepCost] = {}
    for leg, shapes in leg_shapes(schedule, num_gpus):
        costs = [cost_of(steps, shape) for shape in shapes]
        used.update(zip(shapes, costs, strict=True))
        compute = sum(cost.seconds for cost in costs) / len(costs)
        balance = Balance(
            compute=compute,
            compute_core_seconds=sum(cost.core_seconds for cost in costs) / len(costs),
            communication=communication.seconds(num_gpus),
            exposed=communication.exposed_seconds(num_gpus, compute),
            loading_core_seconds=_loading_of(leg, loading, num_gpus),
            resources=resources,
        )
        legs.append(LegPrediction(leg, shapes, balance, min(s.num_bn_groups for s in shapes) < 0))
    return RowPrediction(
        name,
        num_gpus,
        schedule.total_steps,
        tuple(legs),
        sum(cost.first_use_seconds for cost in used.values()),
        _first_batch_seconds(schedule, loading, num_gpus),
    )


def cost_of(steps: Mapping[StepShape, StepCost], shape: StepShape) -> StepCost:
    """As measured, or in proportion to the clips of the nearest measurement of its frames and crop.

    Raises ValueError where there is none.
    """
    if shape in steps:
        return steps[shape]
    same = [s for s in steps if (s.frames, s.crop) == (shape.frames, shape.crop)]
    if not same:
        raise ValueError(f"no step of {shape.frames} frames of {shape.crop}² pixels was measured")
    nearest = min(same, key=lambda s: (abs(math.log(s.clips / shape.clips)), s.num_bn_groups))
    return steps[nearest].scaled(shape.clips / nearest.clips)


def _loading_of(leg: Leg, loading: Mapping[Kind, float] | None, num_gpus: int) -> float | None:
    return None if loading is None else leg.core_seconds_per_step(loading) / num_gpus


def _first_batch_seconds(
    schedule: Schedule, loading: Mapping[Kind, float] | None, num_gpus: int
) -> float:
    """Nothing is ready before the first step, whose batch one worker loads."""
    if loading is None:
        return 0.0
    plan = schedule.plan_at(0)
    return plan.clips / num_gpus * loading[plan.frames, plan.crop, plan.stride_range]
