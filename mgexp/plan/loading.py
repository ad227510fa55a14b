"""What loading the clips of a schedule costs: seconds of one core for a clip of each kind, times the clips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mgexp.multigrid.phases import Phase
from mgexp.multigrid.schedule import Schedule
from mgexp.multigrid.shapes import Cycle

StrideRange = tuple[int, int] | None
Kind = tuple[int, int, StrideRange]
"""(frames, crop, stride range): what the cost of a clip depends on."""


@dataclass(frozen=True)
class Leg:
    """All phases that load the same kinds of clips, together; what differs is the learning rate.

    ``clips_per_step``: a mean over the cycle, of all processes.
    """

    cycle: Cycle
    stride_range: StrideRange
    num_steps: int
    clips_per_step: float

    def clips_of(self) -> dict[Kind, float]:
        """Clips of each kind in a step, a mean over the cycle."""
        found: dict[Kind, float] = {}
        for shape in self.cycle.shapes:
            kind = (shape.frames, shape.crop, self.stride_range)
            share = shape.ratio / sum(other.ratio for other in self.cycle.shapes)
            found[kind] = found.get(kind, 0.0) + share * self.clips_per_step
        return found

    def core_seconds_per_step(self, seconds: Mapping[Kind, float]) -> float:
        """Of one core, from ``seconds`` per clip of each kind."""
        return sum(clips * seconds[kind] for kind, clips in self.clips_of().items())


def legs_of(schedule: Schedule) -> tuple[Leg, ...]:
    """The legs of a schedule, in the order of their first phases."""
    order: dict[tuple[Cycle, StrideRange], list[Phase]] = {}
    for phase in schedule.phases:
        order.setdefault((phase.cycle, phase.stride_range), []).append(phase)
    return tuple(
        Leg(
            cycle,
            stride_range,
            sum(phase.num_steps for phase in phases),
            schedule.recipe.clips * cycle.mean_ratio,
        )
        for (cycle, stride_range), phases in order.items()
    )


def kinds_of(legs: tuple[Leg, ...]) -> tuple[Kind, ...]:
    """Every kind of clip that is loaded, each once."""
    return tuple(dict.fromkeys(kind for leg in legs for kind in leg.clips_of()))


def core_seconds(legs: tuple[Leg, ...], seconds: Mapping[Kind, float]) -> float:
    """Of one core, for all clips of all steps."""
    return sum(leg.num_steps * leg.core_seconds_per_step(seconds) for leg in legs)


def seconds_per_clip(legs: tuple[Leg, ...], seconds: Mapping[Kind, float]) -> float:
    """Of one core, a mean over all clips of all steps."""
    return core_seconds(legs, seconds) / sum(leg.num_steps * leg.clips_per_step for leg in legs)


def unevenness(legs: tuple[Leg, ...], seconds: Mapping[Kind, float]) -> float:
    """How many times as much a step of the dearest leg costs as one of the cheapest."""
    costs = [leg.core_seconds_per_step(seconds) for leg in legs]
    return max(costs) / min(costs)
