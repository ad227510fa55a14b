"""What a row does step by step, as figures need it: its schedule, and what a clip of each shape computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from mgexp.multigrid.phases import Phase
from mgexp.multigrid.schedule import Schedule
from mgexp.multigrid.shapes import BatchShape
from mgexp.record.flops import FLOPS_PER_MAC, TRAINING_PER_FORWARD, train_flops

MAX_LR_STEPS = 400
"""Steps whose learning rate is looked at: more do not show in a panel of a few centimetres."""


@dataclass(frozen=True)
class RowSchedule:
    """A row; ``macs`` are those of a forward pass of one clip, by (frames, crop)."""

    name: str
    schedule: Schedule
    macs: Mapping[tuple[int, int], int]

    @property
    def train_flops(self) -> int:
        """Of all steps."""
        return train_flops(self.schedule, dict(self.macs))

    @property
    def work(self) -> tuple[int, int]:
        """Steps and training FLOPs: what a run of this row comes to."""
        return self.schedule.total_steps, self.train_flops

    def flops_before(self, step: int) -> int:
        """Training FLOPs of the steps before ``step``."""
        done = (
            replace(phase, end_step=min(phase.end_step, step))
            for phase in self.schedule.phases
            if phase.start_step < step
        )
        return train_flops(replace(self.schedule, phases=tuple(done)), dict(self.macs))

    def clips(self, shape: BatchShape) -> int:
        """Of a mini-batch of ``shape``, over all processes."""
        return self.schedule.recipe.clips * shape.ratio

    def step_flops(self, shape: BatchShape) -> int:
        """Training FLOPs of a step of ``shape``."""
        macs = self.macs[shape.frames, shape.crop]
        return self.clips(shape) * macs * FLOPS_PER_MAC * TRAINING_PER_FORWARD

    def clips_per_teraflop(self, phase: Phase) -> float:
        """Clips that a turn of the cycle takes for each 10¹² FLOPs of training.

        That is also the clips a second that must be loaded where the devices do 10¹² FLOPs a second.
        """
        shapes = phase.cycle.shapes
        return 1e12 * sum(map(self.clips, shapes)) / sum(map(self.step_flops, shapes))

    def learning_rates(self) -> list[tuple[int, float]]:
        """(step, rate) at every phase's ends, and at most MAX_LR_STEPS evenly spaced ones."""
        total = self.schedule.total_steps
        stride = max(1, total // MAX_LR_STEPS)
        ends = {step for one in self.schedule.phases for step in (one.start_step, one.end_step - 1)}
        steps = sorted({*ends, *range(0, total, stride)})
        return [(step, self.schedule.plan_at(step).lr) for step in steps]

    def stage_starts(self) -> list[int]:
        """First steps of the stages but the first."""
        phases = self.schedule.phases
        return [new.start_step for old, new in pairwise(phases) if new.stage != old.stage]
