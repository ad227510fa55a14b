"""Measured times of steps that several processes share, as people and programs read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from mgexp.plan.step_shapes import StepShape
from mgexp.plan.step_time import TimedSteps
from mgexp.record.text_table import aligned


@dataclass(frozen=True)
class Team:
    """Processes that share a mini-batch, each of a number of threads."""

    num_processes: int
    num_threads: int

    @property
    def num_cores(self) -> int:
        """Cores that it can use."""
        return self.num_processes * self.num_threads

    def __str__(self) -> str:
        return f"{self.num_processes}x{self.num_threads}"


@dataclass(frozen=True)
class TeamTimes:
    """The timed steps of each team at each shape of the global mini-batch; the first team has one core."""

    teams: Mapping[Team, Mapping[StepShape, TimedSteps]]

    @property
    def shapes(self) -> tuple[StepShape, ...]:
        """Those that were measured."""
        return tuple(next(iter(self.teams.values())))

    @property
    def alone(self) -> Team:
        """What the others are compared with."""
        return next(iter(self.teams))

    def clips_per_second(self, team: Team, shape: StepShape) -> float:
        """Of the median step."""
        return shape.clips / self.teams[team][shape].median

    def efficiency(self, team: Team, shape: StepShape) -> float:
        """Seconds of one core / (seconds of the team × its cores): 1 where nothing is lost.

        The median over the repeats, in each of which the two were measured one after the other.
        """
        one, many = self.teams[self.alone][shape], self.teams[team][shape]
        return median(one.ratios_to(many)) / team.num_cores

    def overall(self, team: Team) -> float:
        """Efficiency over a step of each shape."""
        seconds = [self.teams[one].values() for one in (self.alone, team)]
        alone, shared = (sum(timed.median for timed in one) for one in seconds)
        return alone / shared / team.num_cores


def team_report(times: TeamTimes) -> str:
    """A table for people."""
    others = [team for team in times.teams if team != times.alone]
    head = ["clips x frames x pixels²", *(f"{team}, clips/s" for team in times.teams)]
    head += [f"{team}, efficiency" for team in others]
    rows = [head]
    for shape in times.shapes:
        speeds = [f"{times.clips_per_second(team, shape):.2f}" for team in times.teams]
        rows.append(
            [str(shape), *speeds, *(f"{times.efficiency(team, shape):.2f}" for team in others)]
        )
    rows.append(
        ["a step of each", *("" for _ in times.teams), *(f"{times.overall(t):.2f}" for t in others)]
    )
    note = "2x1: two processes of one thread each, which share the mini-batch of the row."
    return f"{aligned(rows)}\n{note}"


def team_json(times: TeamTimes) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "teams": [
            {
                "num_processes": team.num_processes,
                "num_threads": team.num_threads,
                "efficiency": times.overall(team),
                "shapes": [_shape_json(times, team, shape) for shape in times.shapes],
            }
            for team in times.teams
        ]
    }


def _shape_json(times: TeamTimes, team: Team, shape: StepShape) -> dict[str, Any]:
    return {
        "clips": shape.clips,
        "frames": shape.frames,
        "crop": shape.crop,
        "seconds": list(times.teams[team][shape].seconds),
        "clips_per_second": times.clips_per_second(team, shape),
        "efficiency": times.efficiency(team, shape),
    }
