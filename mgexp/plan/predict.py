"""Predict how long a row trains, and what binds it, from the costs of its steps, of loading and of communication.

The model of a step, in seconds (all of one process; L: core seconds of loading its clips):

    training = compute + what communication adds
    step     = max(training, L / workers, (core seconds of compute + L) / cores)

Workers load while the process trains. On a CPU they share its cores and yield to it, so that loading takes the
time that training leaves idle (third term). Beside a GPU that term rarely matters. Without workers, loading and
training take turns. The cheap and the dear steps of a short cycle even out, since batches are kept ready, so the
means over the cycle count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mgexp.multigrid.schedule import Schedule, StepShape
from mgexp.plan.communication import Communication
from mgexp.plan.loading import Kind, Leg, legs_of

COMPUTE, LOADING, COMMUNICATION = "compute", "loading", "communication"

HEADROOM = 1.25
"""Workers for each one that the mean needs: clips differ in cost. Assumption."""

NEGLIGIBLE_SECONDS = 1e-9
"""A wait or an excess that is due to rounding."""


def workers_needed(load_core_seconds: float, step_seconds: float) -> int:
    """Count the workers that load a step's clips while one step is trained, with some headroom; at least one.

    This is the one rule for planner, doctor and DATA_LOADER.NUM_WORKERS = auto.
    """
    return max(1, math.ceil(HEADROOM * load_core_seconds / step_seconds - NEGLIGIBLE_SECONDS))


@dataclass(frozen=True)
class StepCost:
    """A training step of one process with nothing beside it, its clips at hand.

    ``core_seconds``: processor time of all its threads. ``first_use_seconds``: how much longer the first step of
    the shape took.
    """

    seconds: float
    core_seconds: float
    first_use_seconds: float = 0.0

    def scaled(self, factor: float) -> StepCost:
        """Return the cost of ``factor`` times the clips. Assumption: it is in proportion."""
        return StepCost(self.seconds * factor, self.core_seconds * factor, self.first_use_seconds)


@dataclass(frozen=True)
class Resources:
    """The loader workers of one process, and the cores that it and they share."""

    num_workers: int
    num_cores: int

    def __post_init__(self) -> None:
        if self.num_workers < 0 or self.num_cores < 1:
            raise ValueError(
                "a process has 0 workers or more and a core or more, "
                f"not {self.num_workers} workers and {self.num_cores} cores"
            )


@dataclass(frozen=True)
class Balance:
    """A mean step of one process, in seconds. ``loading_core_seconds`` is None where loading is not known."""

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
        """The step as a clock on the wall sees it."""
        return max(self.training, self.loading)

    @property
    def waiting(self) -> float:
        """The part of the step in which training waits for clips."""
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
        """Count the workers with which training never waits; None where no number helps, for want of cores."""
        needed = workers_needed(self.loading_core_seconds or 0.0, self.training)
        enough = replace(self, resources=replace(self.resources, num_workers=needed))
        return needed if enough.waiting <= NEGLIGIBLE_SECONDS else None

    def cores_to_unbind(self) -> int:
        """Count the fewest cores with which enough workers keep up."""
        busy = self.compute_core_seconds + (self.loading_core_seconds or 0.0)
        return max(1, math.ceil(busy / self.training - NEGLIGIBLE_SECONDS))


@dataclass(frozen=True)
class LegPrediction:
    """The phases of one cycle of shapes. ``spans_processes``: BN groups do; their messages are not modelled."""

    leg: Leg
    shapes: tuple[StepShape, ...]
    balance: Balance
    spans_processes: bool

    @property
    def seconds(self) -> float:
        """Seconds of all its steps."""
        return self.leg.num_steps * self.balance.wall

    def __str__(self) -> str:
        """Name the mini-batches, such as 128x4x32² 64x4x45²."""
        return " ".join(map(str, self.shapes))


@dataclass(frozen=True)
class RowPrediction:
    """A row on ``num_gpus`` GPUs (or processes). ``first_use_seconds`` and ``start_seconds`` come once."""

    name: str
    num_gpus: int
    num_steps: int
    legs: tuple[LegPrediction, ...]
    first_use_seconds: float
    start_seconds: float

    @property
    def seconds(self) -> float:
        """Seconds of training, the wait for input and the first use of shapes included."""
        steps = sum(leg.seconds for leg in self.legs)
        return steps + self.first_use_seconds + self.start_seconds

    @property
    def waiting_seconds(self) -> float:
        """Seconds of waiting for clips."""
        waits = sum(leg.leg.num_steps * leg.balance.waiting for leg in self.legs)
        return waits + self.start_seconds

    def __str__(self) -> str:
        """Name the row and where it trains."""
        return f"{self.name} on {'1 process' if self.num_gpus == 1 else f'{self.num_gpus:,} GPUs'}"


def leg_shapes(schedule: Schedule, num_processes: int) -> list[tuple[Leg, tuple[StepShape, ...]]]:
    """List each leg with the mini-batches of one process, in the order of its cycle."""
    groups = {phase.cycle: phase.num_bn_groups for phase in schedule.phases}
    found = []
    for leg in legs_of(schedule):
        shapes = []
        for shape in leg.cycle.shapes:
            clips = schedule.recipe.clips * shape.ratio // num_processes
            shapes.append(StepShape(shape.frames, shape.crop, clips, groups[leg.cycle]))
        found.append((leg, tuple(shapes)))
    return found


def predict(
    name: str,
    schedule: Schedule,
    steps: Mapping[StepShape, StepCost],
    loading: Mapping[Kind, float] | None,
    resources: Resources,
    communication: Communication,
    num_gpus: int = 1,
) -> RowPrediction:
    """Predict what ``schedule``, made for ``num_gpus`` processes, takes. ``loading``: core seconds of a clip.

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
            loading_core_seconds=None
            if loading is None
            else leg.core_seconds_per_step(loading) / num_gpus,
            resources=resources,
        )
        legs.append(LegPrediction(leg, shapes, balance, min(s.num_bn_groups for s in shapes) < 0))
    start_seconds = 0.0
    if loading is not None:
        # No batch is ready before the first step, and one worker loads the first batch.
        first = schedule.plan_at(0)
        clip_seconds = loading[first.frames, first.crop, first.stride_range]
        start_seconds = first.clips / num_gpus * clip_seconds
    first_use_seconds = sum(cost.first_use_seconds for cost in used.values())
    return RowPrediction(
        name, num_gpus, schedule.total_steps, tuple(legs), first_use_seconds, start_seconds
    )


def cost_of(steps: Mapping[StepShape, StepCost], shape: StepShape) -> StepCost:
    """Look up the cost of ``shape``, or scale that of the same frames and crop with the nearest number of clips.

    Raises ValueError where there is none.
    """
    if shape in steps:
        return steps[shape]
    same = [s for s in steps if (s.frames, s.crop) == (shape.frames, shape.crop)]
    if not same:
        raise ValueError(f"no step of {shape.frames} frames of {shape.crop}² pixels was measured")
    nearest = min(same, key=lambda s: (abs(math.log(s.clips / shape.clips)), s.num_bn_groups))
    return steps[nearest].scaled(shape.clips / nearest.clips)
