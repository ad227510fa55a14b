"""The different mini-batches of a schedule, as one process trains them: what the time of a step depends on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from mgexp.multigrid.schedule import Schedule


@dataclass(frozen=True)
class StepShape:
    """A mini-batch of one process: ``clips`` of ``frames`` × ``crop`` × ``crop`` in ``num_bn_groups`` groups."""

    frames: int
    crop: int
    clips: int
    num_bn_groups: int

    def __str__(self) -> str:
        return f"{self.clips}x{self.frames}x{self.crop}²"


def step_counts(schedule: Schedule, num_processes: int = 1) -> Counter[StepShape]:
    """How many steps of the schedule have each shape, phase by phase."""
    counts: Counter[StepShape] = Counter()
    for phase in schedule.phases:
        for shape, num_steps in phase.turns.steps_by_shape(phase.num_steps):
            clips = schedule.recipe.clips * shape.ratio // num_processes
            key = StepShape(shape.frames, shape.crop, clips, phase.num_bn_groups)
            counts[key] += num_steps
    return counts


def base_shapes(schedule: Schedule, num_processes: int = 1) -> tuple[StepShape, ...]:
    """The base shapes of the phases, each once: of the long cycle, without the short cycle's smaller crops."""
    shapes = [
        StepShape(
            phase.cycle.base.frames,
            phase.cycle.base.crop,
            schedule.recipe.clips * phase.cycle.base.ratio // num_processes,
            phase.num_bn_groups,
        )
        for phase in schedule.phases
    ]
    return tuple(dict.fromkeys(shapes))
