"""The schedule of a run: a pure function from a step to what that step does.

Nothing here has state: a checkpoint stores the number of a step, and the baseline is the schedule with one shape.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from mgexp.multigrid.phases import MAX_CLIPS, Phase, derive_phases
from mgexp.multigrid.recipe import Multigrid, Recipe
from mgexp.multigrid.shapes import BatchShape


@dataclass(frozen=True)
class StepPlan:
    """Everything that one step does.

    ``clips`` counts the clips of all processes. ``epoch`` is the number of clips drawn before the
    step, divided by the number of videos. ``first_clip`` is that number of clips, the step's
    position in the stream. ``weight_decay_factor`` multiplies the weight decay. ``num_bn_groups`` counts
    the groups of each process; with −n one group spans n processes.
    """

    step: int
    epoch: float
    phase: int
    stage: int
    frames: int
    crop: int
    stride_range: tuple[int, int] | None
    clips: int
    first_clip: int
    lr: float
    weight_decay_factor: float
    num_bn_groups: int


@dataclass(frozen=True)
class Schedule:
    """The phases of one run over ``num_videos`` training videos in ``num_processes``; see ``build_schedule``."""

    recipe: Recipe
    multigrid: Multigrid
    num_videos: int
    phases: tuple[Phase, ...]
    num_processes: int = 1

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """List the (frames, crop) of the clips that are trained, each once, from coarse to fine."""
        sizes = {
            (shape.frames, shape.crop) for phase in self.phases for shape in phase.cycle.shapes
        }
        return tuple(sorted(sizes))

    @property
    def total_steps(self) -> int:
        return self.phases[-1].end_step

    @property
    def total_epochs(self) -> float:
        """Return the epoch at which the last phase ends. Its last step may draw clips past it."""
        return self.phases[-1].end_epoch

    @property
    def baseline_steps(self) -> int:
        return round(self.recipe.max_epoch * self.num_videos / self.recipe.clips)

    @property
    def step_saving(self) -> float:
        return self.baseline_steps / self.total_steps

    @property
    def flop_saving(self) -> float:
        recipe = self.recipe
        full = self.multigrid.clip_cost(recipe.frames, recipe.crop)
        return self.baseline_steps * recipe.clips * full / self.cost_before(self.total_steps)

    def plan_at(self, step: int) -> StepPlan:
        """Return the plan of ``step``, 0 ≤ step < total_steps."""
        index, phase = self._phase_at(step)
        offset = step - phase.start_step
        shape = phase.turns.shape_at(offset)
        first_clip = self._first_clip(step)
        return StepPlan(
            step=step,
            epoch=first_clip / self.num_videos,
            phase=index,
            stage=phase.stage,
            frames=shape.frames,
            crop=shape.crop,
            stride_range=phase.stride_range,
            clips=shape.clips,
            first_clip=first_clip,
            lr=self.lr_at(step, first_clip / self.num_videos),
            weight_decay_factor=phase.weight_decay_factor,
            num_bn_groups=phase.num_bn_groups,
        )

    def epoch_before(self, step: int) -> float:
        """Return the epochs that the steps before ``step`` draw, 0 ≤ step ≤ total_steps."""
        return self._first_clip(min(step, self.total_steps)) / self.num_videos

    def lr_at(self, step: int, epoch: float) -> float:
        """Return the learning rate: a warm-up that is linear in epochs, then the policy."""
        warmup_epochs = self._warmup_epochs
        # At its end the warm-up would give the policy's rate only up to rounding, so that epoch already belongs
        # to the policy.
        if epoch >= warmup_epochs:
            return self._policy_lr(step)
        start, end = self.recipe.warmup_start_lr, self._policy_lr(self._warmup_end)
        return start + (end - start) * epoch / warmup_epochs

    def step_at_epoch(self, epoch: float) -> int:
        """Return the first step before which at least ``epoch`` epochs were drawn, or else the last step."""
        # The epochs before a step only grow, so a binary search finds the step. It compares the same quotients as
        # ``lr_at``: a product with ``num_videos`` may be rounded up, and would then find the next step.
        step = bisect.bisect_left(range(self.total_steps), epoch, key=self.epoch_before)
        return min(step, self.total_steps - 1)

    def cost_before(self, step: int, cost: Callable[[int, int], int] | None = None) -> int:
        """Sum the cost of the clips before ``step``: ``cost(frames, crop)``, or else ``Multigrid.clip_cost``."""
        # All numbers are whole, so the sums are exact however long the run is.
        cost, total = cost or self.multigrid.clip_cost, 0
        for phase in self.phases:
            num_steps = min(max(0, step - phase.start_step), phase.num_steps)
            for shape, steps in phase.turns.steps_by_shape(num_steps):
                total += steps * shape.clips * cost(shape.frames, shape.crop)
        return total

    # A frozen dataclass may have cached properties: they write to its __dict__ directly.
    @cached_property
    def _warmup_epochs(self) -> float:
        # An epoch of coarse clips has few steps, because their mini-batches are large. So a warm-up
        # may have to last longer than its epochs.
        return max(self.recipe.warmup_epochs, self.epoch_before(self.recipe.warmup_steps))

    @cached_property
    def _warmup_end(self) -> int:
        return self.step_at_epoch(self._warmup_epochs)

    def _policy_lr(self, step: int) -> float:
        _, phase = self._phase_at(step)
        recipe = self.recipe
        lr = recipe.base_lr * phase.lr_factor
        if recipe.policy == "cosine":
            first = self._baseline_epoch(self._warmup_end) if recipe.cosine_after_warmup else 0.0
            done = (self._baseline_epoch(step) - first) / (recipe.max_epoch - first)
            share = 0.5 * (1 + math.cos(math.pi * done))
            # The end of the cosine grows with the clips as its start does. So the rates of coarse shapes stay in
            # proportion to that of the full shape until the last step.
            lr = lr * share + recipe.cosine_end_lr * phase.lr_factor * (1 - share)
        return lr

    def _baseline_epoch(self, step: int) -> float:
        """Return the epoch of the baseline that the cosine has at ``step``.

        A stage of the schedule covers the same epochs as that stage of the baseline, linearly in steps.
        """
        # This is our choice: the released code has no rule for cosine and long cycle.
        _, phase = self._phase_at(step)
        recipe, stage = self.recipe, phase.stage
        # The phases of a stage follow each other, so the first and the last of them bound it.
        phases = [other for other in self.phases if other.stage == stage]
        start, end = phases[0].start_step, phases[-1].end_step
        done = (step - start) / (end - start)
        return recipe.stage_epochs[stage] + done * recipe.stage_durations[stage]

    def _phase_at(self, step: int) -> tuple[int, Phase]:
        if not 0 <= step < self.total_steps:
            raise IndexError(f"step {step} is not in [0, {self.total_steps})")
        index = bisect.bisect_right(self.phases, step, key=lambda phase: phase.start_step) - 1
        return index, self.phases[index]

    def _first_clip(self, step: int) -> int:
        # ``step`` may also be total_steps, the end of the run. It then belongs to the last phase.
        _, phase = self._phase_at(min(step, self.total_steps - 1))
        offset = step - phase.start_step
        return phase.first_clip + phase.turns.clips_before(offset)


def build_schedule(
    recipe: Recipe, multigrid: Multigrid, num_videos: int, num_processes: int = 1
) -> Schedule:
    """Derive the schedule of ``recipe``, varied by ``multigrid``, over ``num_videos`` training videos.

    Raises ValueError if it is impossible: see ``phases.derive_phases``.
    """
    if num_videos < 1:
        raise ValueError(f"a schedule needs at least one training video, not {num_videos}")
    if num_videos > MAX_CLIPS:
        raise ValueError(f"a schedule takes 2^53 training videos at most, not {num_videos}")
    if num_processes < 1:
        raise ValueError(f"a schedule needs at least one process, not {num_processes}")
    phases = derive_phases(recipe, multigrid, num_videos, num_processes)
    if not phases:
        whole = " and a whole epoch each" if multigrid.granularity == "epoch" else ""
        raise ValueError(
            f"recipe.max_epoch = {recipe.max_epoch:g} epochs of {num_videos} videos have no phase: phases last at "
            f"least one step of {recipe.clips} clips{whole}: raise it"
        )
    num_steps = phases[-1].end_step
    # A warm-up that never ends would train below the rate of the recipe from first to last.
    if recipe.warmup_steps >= num_steps:
        raise ValueError(
            f"recipe.warmup_steps = {recipe.warmup_steps} is not less than the {num_steps} steps of the "
            "whole schedule: lower it, or raise recipe.max_epoch"
        )
    num_epochs = phases[-1].end_epoch
    if recipe.warmup_epochs >= num_epochs:
        raise ValueError(
            f"recipe.warmup_epochs = {recipe.warmup_epochs:g} is not less than the {num_epochs:.4g} epochs of the "
            "whole schedule: lower it, or raise recipe.max_epoch"
        )
    # After many stages of decay the learning rate can underflow to 0. With large ratios it can
    # overflow.
    for phase in phases:
        lr = recipe.base_lr * phase.lr_factor
        if not 0 < lr < math.inf:
            raise ValueError(
                f"stage {phase.stage} has the learning rate {lr:g}, recipe.base_lr = {recipe.base_lr:g} times "
                f"{phase.lr_factor:g}: change that, recipe.gamma or recipe.stage_epochs"
            )
    return Schedule(recipe, multigrid, num_videos, phases, num_processes)


@dataclass(frozen=True)
class StepShape:
    """A mini-batch of one process: ``clips`` × ``frames`` × ``crop``², in ``num_bn_groups`` groups."""

    frames: int
    crop: int
    clips: int
    num_bn_groups: int

    def __str__(self) -> str:
        return f"{self.clips}x{self.frames}x{self.crop}²"


def step_shape(schedule: Schedule, phase: Phase, shape: BatchShape) -> StepShape:
    clips = shape.clips // schedule.num_processes
    return StepShape(shape.frames, shape.crop, clips, phase.num_bn_groups)


def step_counts(schedule: Schedule, first_step: int = 0) -> Counter[StepShape]:
    """Count the steps from ``first_step`` on that have each shape."""
    counts: Counter[StepShape] = Counter()
    for phase in schedule.phases:
        num_done = min(max(0, first_step - phase.start_step), phase.num_steps)
        # A resume may begin inside a turn. A difference of two counts is exact there too.
        for num_steps, sign in ((phase.num_steps, 1), (num_done, -1)):
            for shape, steps in phase.turns.steps_by_shape(num_steps):
                counts[step_shape(schedule, phase, shape)] += sign * steps
    return counts


def base_shapes(schedule: Schedule) -> tuple[StepShape, ...]:
    """Return the base shapes of the phases, each once, without those of the short cycle."""
    shapes = (step_shape(schedule, p, p.cycle.base) for p in schedule.phases)
    return tuple(dict.fromkeys(shapes))
