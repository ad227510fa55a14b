"""Start processes that share mini-batches, and compute their efficiency, for tools/bench_processes.py."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from way_in_processes import WayInProcesses

from mgexp import dist
from mgexp.config.keys import Config
from mgexp.multigrid.phases import num_bn_groups
from mgexp.multigrid.schedule import StepShape
from mgexp.plan.timing import Step, TimedSteps, Way
from mgexp.plan.ways import build_training_step
from mgexp.text import aligned

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Team:
    """Processes that share a mini-batch, and the number of threads of each."""

    num_processes: int
    num_threads: int

    @property
    def num_cores(self) -> int:
        """The number of cores that the team can use."""
        return self.num_processes * self.num_threads

    def __str__(self) -> str:
        return f"{self.num_processes}x{self.num_threads}"


def build_team(cfg: Config, team: Team) -> WayInProcesses:
    """Start the processes of ``team`` over gloo. They share the clips of a shape as in a run.

    The result is a way for ``measure_steps``. It takes base shapes with the clips of the global mini-batch.
    """
    # With port 0, the system chooses a free port. The processes then meet there.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    members = [_Member(cfg, rank, team.num_processes, port) for rank in range(team.num_processes)]
    return WayInProcesses(members, team.num_threads)


@dataclass(frozen=True)
class _Member:
    """A maker of the way of one process. It is pickled, and it runs in that process."""

    cfg: Config
    rank: int
    count: int
    port: int

    def __call__(self) -> Way:
        own = {"RANK": self.rank, "WORLD_SIZE": self.count, "LOCAL_RANK": self.rank}
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.port}
        os.environ.update({name: str(value) for name, value in {**own, **meeting}.items()})
        processes = dist.from_environment()
        # Enter without leaving: the process stays in the group until it ends.
        ExitStack().enter_context(dist.joined(processes, CPU))
        ours = build_training_step(self.cfg, CPU)
        model = dist.shared(processes, ours.step.model)
        ours = replace(ours, step=replace(ours.step, model=model))

        def way(shape: StepShape) -> Step:
            groups = num_bn_groups(shape.clips, self.count, self.cfg.MULTIGRID.BN_BASE_SIZE)
            return ours(replace(shape, clips=shape.clips // self.count, num_bn_groups=groups))

        return way


@dataclass(frozen=True)
class TeamTimes:
    """The timed steps of each team at each shape of the global mini-batch. The first team uses one core."""

    teams: Mapping[Team, Mapping[StepShape, TimedSteps]]

    @property
    def shapes(self) -> tuple[StepShape, ...]:
        """The shapes that were measured."""
        return tuple(next(iter(self.teams.values())))

    @property
    def alone(self) -> Team:
        """The team of one core, the reference for the others."""
        return next(iter(self.teams))

    def clips_per_second(self, team: Team, shape: StepShape) -> float:
        """Compute the clips per second of the median step."""
        return shape.clips / self.teams[team][shape].median

    def efficiency(self, team: Team, shape: StepShape) -> float:
        """Divide the seconds of one core by the seconds of the team times its cores. 1 means that nothing is lost.

        This is the median over the repeats, because one repeat measures both teams shortly after each other.
        """
        one, many = self.teams[self.alone][shape], self.teams[team][shape]
        return median(one.ratios_to(many)) / team.num_cores

    def overall(self, team: Team) -> float:
        """Compute the efficiency over one step of each shape."""
        seconds = [self.teams[one].values() for one in (self.alone, team)]
        alone, shared = (sum(timed.median for timed in one) for one in seconds)
        return alone / shared / team.num_cores

    def report(self) -> str:
        """Write a table for people."""
        others = [team for team in self.teams if team != self.alone]
        head = ["clips x frames x pixels²", *(f"{team}, clips/s" for team in self.teams)]
        rows = [[*head, *(f"{team}, efficiency" for team in others)]]
        for shape in self.shapes:
            speeds = [f"{self.clips_per_second(team, shape):.2f}" for team in self.teams]
            gains = [f"{self.efficiency(team, shape):.2f}" for team in others]
            rows.append([str(shape), *speeds, *gains])
        overall = [f"{self.overall(team):.2f}" for team in others]
        rows.append(["a step of each", *("" for _ in self.teams), *overall])
        note = "2x1: two processes of one thread each, which share the mini-batch of the row."
        return f"{aligned(rows)}\n{note}"

    def to_json(self) -> dict[str, Any]:
        """Return everything that was measured, for JSON."""
        teams = []
        for team, timed in self.teams.items():
            shapes = [
                {
                    "clips": shape.clips,
                    "frames": shape.frames,
                    "crop": shape.crop,
                    "seconds": list(timed[shape].seconds),
                    "clips_per_second": self.clips_per_second(team, shape),
                    "efficiency": self.efficiency(team, shape),
                }
                for shape in self.shapes
            ]
            teams.append(
                {
                    "num_processes": team.num_processes,
                    "num_threads": team.num_threads,
                    "efficiency": self.overall(team),
                    "shapes": shapes,
                }
            )
        return {"teams": teams}
