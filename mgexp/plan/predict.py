"""Predict how long a row trains, and which part limits it: computing, loading or communication.

The model of a step of one process, in seconds (L: core seconds of loading its clips):

    training = compute + the part of communication that the backward pass does not hide
    step     = max(training, L / workers, (core seconds of compute + L) / cores)

Workers load while the process trains. On a CPU they share its cores with training and yield to it,
so loading gets the time that training leaves idle: this is the third term. It rarely matters when a
GPU trains. Without workers, loading and training take turns. Workers keep batches ready. So steps
whose clips load fast make up for steps whose clips load slowly, and the model uses means over the
cycle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mgexp.multigrid.schedule import Schedule, StepShape, step_shape
from mgexp.plan.communication import Communication
from mgexp.plan.loading import Kind, Leg, legs_of

COMPUTE, LOADING, COMMUNICATION = "compute", "loading", "communication"

HEADROOM = 1.25
"""Factor on the number of workers that suffices on average, because clips differ in cost. Assumption."""

NEGLIGIBLE_SECONDS = 1e-9
"""A wait or an excess below this is a rounding error."""


def workers_needed(load_core_seconds: float, step_seconds: float) -> int:
    """Count the workers that load a step's clips during a step, with HEADROOM; at least one.

    Planner, doctor and DATA_LOADER.NUM_WORKERS = auto all use this rule.
    """
    # Subtract a rounding error first, since otherwise 2.0000000001 workers would become 3.
    return max(1, math.ceil(HEADROOM * load_core_seconds / step_seconds - NEGLIGIBLE_SECONDS))


@dataclass(frozen=True)
class StepCost:
    """The cost of a training step of one process whose clips are ready, while no other program runs.

    ``core_seconds``: processor time of all its threads. ``first_use_seconds``: extra time of the first step of the
    shape.
    """

    seconds: float
    core_seconds: float
    first_use_seconds: float = 0.0


@dataclass(frozen=True)
class Resources:
    """The loader workers of one process, and the cores that the process and its workers share."""

    num_workers: int
    num_cores: int


@dataclass(frozen=True)
class Balance:
    """A mean step of one process, in seconds.

    ``communication``: all communication. ``exposed``: the part of it that lengthens the step.
    ``loading_core_seconds``: None if the cost of loading is not known.
    """

    compute: float
    compute_core_seconds: float
    communication: float
    exposed: float
    loading_core_seconds: float | None
    resources: Resources

    @property
    def training(self) -> float:
        """Seconds of the step if its clips are always ready."""
        return self.compute + self.exposed

    @property
    def loading(self) -> float:
        """Seconds in which the clips of a step are loaded, while training runs; 0 if loading is not known."""
        core_seconds, workers = self.loading_core_seconds or 0.0, self.resources.num_workers
        if not core_seconds:
            return 0.0
        if not workers:
            # The process loads its clips itself, before each step.
            return self.training + core_seconds
        # Either the workers are too few, or all cores are busy with loading and training.
        shared = (self.compute_core_seconds + core_seconds) / self.resources.num_cores
        return max(core_seconds / workers, shared)

    @property
    def wall(self) -> float:
        """Seconds of the step, with waiting."""
        return max(self.training, self.loading)

    @property
    def waiting(self) -> float:
        """Seconds of the step in which training waits for clips."""
        return self.wall - self.training

    @property
    def binds(self) -> str:
        """The part whose removal would shorten the step most: compute, loading or communication."""
        # If one limit is removed, the next one limits the step. So the question is not which part
        # takes longest, but how long a step would take without each part.
        without = {
            COMPUTE: replace(self, compute=0.0, compute_core_seconds=0.0),
            LOADING: replace(self, loading_core_seconds=None),
            COMMUNICATION: replace(self, communication=0.0, exposed=0.0),
        }
        return min(without, key=lambda name: without[name].wall)

    def workers_to_unbind(self) -> int | None:
        """Count the workers with which training never waits; None if there are too few cores for that."""
        needed = workers_needed(self.loading_core_seconds or 0.0, self.training)
        # More workers help only as long as there are cores for them.
        enough = replace(self, resources=replace(self.resources, num_workers=needed))
        return needed if enough.waiting <= NEGLIGIBLE_SECONDS else None

    def cores_to_unbind(self) -> int:
        """Count the fewest cores with which training never waits, given enough workers."""
        busy = self.compute_core_seconds + (self.loading_core_seconds or 0.0)
        return max(1, math.ceil(busy / self.training - NEGLIGIBLE_SECONDS))


@dataclass(frozen=True)
class LegPrediction:
    """The prediction of a leg.

    ``spans_processes``: whether a BN group spans processes. The messages for this are not in the
    model.
    """

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
    """The prediction of a row on ``num_gpus`` GPUs or processes.

    ``first_use_seconds``: extra time of the first step of every shape. ``start_seconds``: wait for the first
    batch.
    """

    name: str
    num_gpus: int
    num_steps: int
    legs: tuple[LegPrediction, ...]
    first_use_seconds: float
    start_seconds: float

    @property
    def seconds(self) -> float:
        """Seconds of training, including the waits for clips and the first use of shapes."""
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


def leg_shapes(schedule: Schedule) -> list[tuple[Leg, tuple[StepShape, ...]]]:
    """List each leg with the mini-batches of one process, in the order of its cycle."""
    # All phases with one cycle have the same BN groups, so any of these phases gives them.
    phase_of = {phase.cycle: phase for phase in schedule.phases}
    found = []
    for leg in legs_of(schedule):
        phase = phase_of[leg.cycle]
        shapes = (step_shape(schedule, phase, one) for one in leg.cycle.shapes)
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
    """Predict the training of ``schedule``, which must be built for ``num_gpus`` processes.

    ``loading``: core seconds of a clip of each kind. Raises ValueError if the frames and the crop of a
    shape were not measured with any number of clips.
    """
    legs = []
    used: dict[StepShape, StepCost] = {}
    for leg, shapes in leg_shapes(schedule):
        costs = [cost_of(steps, shape) for shape in shapes]
        # Legs share shapes, and a run pays for the first use of a shape once.
        used.update(zip(shapes, costs, strict=True))
        compute = sum(cost.seconds for cost in costs) / len(costs)
        balance = Balance(
            compute=compute,
            compute_core_seconds=sum(cost.core_seconds for cost in costs) / len(costs),
            communication=communication.seconds(num_gpus),
            exposed=communication.exposed_seconds(num_gpus, compute),
            loading_core_seconds=(
                None if loading is None else leg.core_seconds_per_step(loading) / num_gpus
            ),
            resources=resources,
        )
        legs.append(LegPrediction(leg, shapes, balance, min(s.num_bn_groups for s in shapes) < 0))
    start_seconds = 0.0
    if loading is not None and resources.num_workers:
        # No batch is ready before the first step, and one worker loads the first batch. Without workers each step
        # has its own loading.
        first = schedule.plan_at(0)
        clip_seconds = loading[first.frames, first.crop, first.stride_range]
        start_seconds = first.clips / num_gpus * clip_seconds
    first_use_seconds = sum(cost.first_use_seconds for cost in used.values())
    return RowPrediction(
        name, num_gpus, schedule.total_steps, tuple(legs), first_use_seconds, start_seconds
    )


def cost_of(steps: Mapping[StepShape, StepCost], shape: StepShape) -> StepCost:
    """Look up the cost of ``shape``, or scale the cost of its frames and crop at the nearest number of clips.

    Raises ValueError where these frames and this crop were not measured.
    """
    if shape in steps:
        return steps[shape]
    same = [s for s in steps if (s.frames, s.crop) == (shape.frames, shape.crop)]
    if not same:
        size = f"{shape.frames} frames of {shape.crop}² pixels"
        raise ValueError(f"no step of {size} was measured; measure again")
    nearest = min(same, key=lambda s: (abs(math.log(s.clips / shape.clips)), s.num_bn_groups))
    # Assumption: the cost is in proportion to the clips. The extra time of the first use is not:
    # in this time, libraries prepare themselves for the shape.
    cost, factor = steps[nearest], shape.clips / nearest.clips
    return StepCost(cost.seconds * factor, cost.core_seconds * factor, cost.first_use_seconds)
