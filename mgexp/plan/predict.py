"""Predict how long a row trains from measured seconds: steps × seconds of each shape, and the loading bound.

The model of a step of one process, in seconds (L: core seconds of loading its clips):

    step = max(compute, L / workers, (cores that compute · compute + L) / cores)

Workers load while the process trains. On a CPU they share its cores with training and yield to it, so loading gets
the time that training leaves idle: this is the third term. Without workers, loading and training take turns.
Workers keep batches ready. So steps whose clips load fast make up for steps whose clips load slowly, and the model
uses means over the cycle. The seconds of an all-reduce between processes are not in the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from mgexp.config.keys import Config
from mgexp.data.loader import worker_count
from mgexp.dist import device_of
from mgexp.multigrid.schedule import Schedule, StepShape, step_shape
from mgexp.plan.loading import Kind, PhaseLoad, phase_loads
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


@dataclass(frozen=True)
class MeanStep:
    """A mean step of one process, in seconds. ``loading_core_seconds``: None where loading is not known."""

    compute: float
    loading_core_seconds: float | None
    resources: Resources

    @property
    def loading(self) -> float:
        """Seconds in which the clips of a step are loaded, while training runs; 0 if loading is not known."""
        core_seconds, resources = self.loading_core_seconds or 0.0, self.resources
        if not core_seconds:
            return 0.0
        if not resources.num_workers:
            # The process loads its clips itself, before each step.
            return self.compute + core_seconds
        # Either the workers are too few, or all cores are busy with loading and training.
        shared = (resources.busy_cores * self.compute + core_seconds) / resources.num_cores
        return max(core_seconds / resources.num_workers, shared)

    @property
    def seconds(self) -> float:
        return max(self.compute, self.loading)

    @property
    def waiting(self) -> float:
        return self.seconds - self.compute

    @property
    def cores_needed(self) -> float:
        """Cores with which loading would keep up: those of the step, and those of its clips."""
        return self.resources.busy_cores + (self.loading_core_seconds or 0.0) / self.compute


@dataclass(frozen=True)
class PhasePrediction:
    """The prediction of all phases that load the same clips."""

    load: PhaseLoad
    shapes: tuple[StepShape, ...]
    step: MeanStep

    def __str__(self) -> str:
        """Name the mini-batches, such as 128x4x32² 64x4x45²."""
        return " ".join(map(str, self.shapes))


@dataclass(frozen=True)
class RowPrediction:
    """The prediction of a row. ``first_use_seconds``: extra time of the first step of every shape."""

    num_steps: int
    phases: tuple[PhasePrediction, ...]
    first_use_seconds: float

    @property
    def seconds(self) -> float:
        """Seconds of training, including the waits for clips and the first use of shapes."""
        steps = sum(phase.load.num_steps * phase.step.seconds for phase in self.phases)
        return steps + self.first_use_seconds

    @property
    def waiting_seconds(self) -> float:
        return sum(phase.load.num_steps * phase.step.waiting for phase in self.phases)


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
        core_seconds = None
        if clips is not None:
            core_seconds = load.core_seconds_per_step(clips) / num_processes
        phases.append(PhasePrediction(load, shapes, MeanStep(compute, core_seconds, resources)))
    # A run pays for the first use of a shape once.
    used = {shape for phase in phases for shape in phase.shapes}
    first_use_seconds = sum(steps[shape].first_use_seconds for shape in used)
    return RowPrediction(schedule.total_steps, tuple(phases), first_use_seconds)
