"""Predict how long a row trains from measured seconds: steps × seconds of each shape, and the loading bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from mgexp.config.keys import Config
from mgexp.data.loader import worker_count
from mgexp.dist import device_of
from mgexp.multigrid.schedule import Schedule, StepShape, step_shape
from mgexp.plan.loading import Kind, phase_loads
from mgexp.plan.timing import TimedSteps
from mgexp.run.environment import num_cores


@dataclass(frozen=True)
class Resources:
    """The workers of a process, the cores of both, and the cores that a step keeps busy (0 on a GPU)."""

    num_workers: int
    num_cores: int
    busy_cores: int = 0


def build_resources(cfg: Config, num_processes: int = 1) -> Resources:
    """Return what each of ``num_processes`` has that share the cores of this machine."""
    cores = max(1, num_cores() // num_processes)
    workers = worker_count(cfg.DATA_LOADER.NUM_WORKERS, num_processes)
    # On a CPU, a step keeps as many cores busy as it has threads.
    is_cpu = device_of(cfg.DEVICE).type == "cpu"
    return Resources(workers, cores, min(cores, torch.get_num_threads()) if is_cpu else 0)


def step_seconds(compute: float, core_seconds: float | None, resources: Resources) -> float:
    """Predict the seconds of a mean step of one process, which include the wait for its clips.

    The model of a step, with L ``core_seconds`` of loading its clips (None where loading is not known):

        step = max(compute, L / workers, (cores that compute · compute + L) / cores)

    Workers load while the process trains. On a CPU they share its cores with training and yield to it, so loading
    gets the time that training leaves idle: this is the third term. Without workers, loading and training take
    turns. Workers keep batches ready. So steps whose clips load fast make up for steps whose clips load slowly,
    and the model uses means over the cycle. The seconds of an all-reduce between processes are not in the model.
    """
    if not core_seconds:
        return compute
    if not resources.num_workers:
        # The process loads its clips itself, before each step.
        return compute + core_seconds
    # Either the workers are too few, or all cores are busy with loading and training.
    shared = (resources.busy_cores * compute + core_seconds) / resources.num_cores
    return max(compute, core_seconds / resources.num_workers, shared)


@dataclass(frozen=True)
class PhasePrediction:
    """The prediction of all phases that load the same clips: a mean step of one process, in seconds.

    Loading keeps up with ``cores_needed``: those of the step, and those of its clips. This number and
    ``loading_core_seconds`` are None where loading is not known.
    """

    num_steps: int
    shapes: tuple[StepShape, ...]
    compute: float
    loading_core_seconds: float | None
    seconds: float
    cores_needed: float | None


@dataclass(frozen=True)
class RowPrediction:
    """The prediction of a row. ``first_use_seconds``: extra time of the first step of every shape."""

    num_steps: int
    phases: tuple[PhasePrediction, ...]
    first_use_seconds: float
    resources: Resources

    @property
    def seconds(self) -> float:
        """Seconds of training, including the waits for clips and the first use of shapes."""
        steps = sum(phase.num_steps * phase.seconds for phase in self.phases)
        return steps + self.first_use_seconds

    @property
    def waiting_seconds(self) -> float:
        return sum(phase.num_steps * (phase.seconds - phase.compute) for phase in self.phases)


def predict(
    schedule: Schedule,
    steps: Mapping[StepShape, TimedSteps],
    clips: Mapping[Kind, float] | None,
    resources: Resources,
    num_processes: int = 1,
) -> RowPrediction:
    """Predict the training of ``schedule``, which must be built for ``num_processes``.

    ``steps`` has every shape of the schedule. ``clips``: core seconds of a clip of each kind.
    """
    # All phases with one cycle have the same BN groups, so any of these phases gives them.
    phase_of = {phase.cycle: phase for phase in schedule.phases}
    phases = []
    for load in phase_loads(schedule):
        phase = phase_of[load.cycle]
        shapes = tuple(step_shape(schedule, phase, shape) for shape in load.cycle.shapes)
        compute = sum(steps[shape].median for shape in shapes) / len(shapes)
        core_seconds = cores_needed = None
        if clips is not None:
            core_seconds = load.core_seconds_per_step(clips) / num_processes
            cores_needed = resources.busy_cores + core_seconds / compute
        seconds = step_seconds(compute, core_seconds, resources)
        phases.append(
            PhasePrediction(load.num_steps, shapes, compute, core_seconds, seconds, cores_needed)
        )
    # A run pays for the first use of a shape once.
    used = {shape for phase in phases for shape in phase.shapes}
    first_use_seconds = sum(steps[shape].first_use_seconds for shape in used)
    return RowPrediction(schedule.total_steps, tuple(phases), first_use_seconds, resources)
