"""The loop: one schedule, one loader, one model, from the first step to the last."""

from __future__ import annotations

import bisect
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mgexp import dist
from mgexp.data.clips import Batch
from mgexp.data.loader import DeviceBatches
from mgexp.dist import Processes
from mgexp.errors import TrainingError
from mgexp.models.layers import Draws
from mgexp.multigrid.schedule import Schedule, StepPlan, StepShape, step_counts
from mgexp.optim.build import set_lr
from mgexp.run.clock import Clock, StepTimer
from mgexp.run.log import LOGGER, Progress, StepRecord
from mgexp.stop import Interrupted, StopRequest
from mgexp.train.checkpoint import State
from mgexp.train.faults import first_line, is_out_of_memory, shape_message
from mgexp.train.step import TrainStep, check_clips, seed_step

MAX_SETTLE_SECONDS = 5.0
"""Processes agree at least this often whether to stop: Slurm and torchrun wait 30 s before they kill."""
NUM_LOSSES = 5
"""How many losses before one that is not finite the message shows."""


def milestones(schedule: Schedule, num_evaluations: int) -> tuple[int, ...]:
    """Return the numbers of finished steps after which to evaluate, ascending. The last one ends the schedule.

    They are evenly spaced by cost: clips × frames × crop², which the time of a step follows.
    """
    total = schedule.cost_before(schedule.total_steps)
    steps = range(schedule.total_steps + 1)
    found = [
        bisect.bisect_left(steps, total * i / num_evaluations, key=schedule.cost_before)
        for i in range(1, num_evaluations)
    ]
    return tuple(sorted({step for step in found if step > 0} | {schedule.total_steps}))


@dataclass
class Loop:
    """Train ``state`` along ``schedule``; save and evaluate at its milestones.

    Every ``settle_steps`` steps, more often if steps take long, and before anything else happens, the loop
    settles: it reads losses and times from the device, and the processes agree whether to stop. Between these
    moments no process waits for its device or for another process. A process that is alone also stops while it
    waits for clips.
    """

    state: State
    train_step: TrainStep
    schedule: Schedule
    processes: Processes
    stop: StopRequest
    seed: int
    milestones: tuple[int, ...]
    settle_steps: int
    evaluate: Callable[[], object]
    saving: Saving
    loaded: LoadedClips

    def run(self, batches: Iterator[Batch], progress: Progress) -> bool:
        """Train to the end; return False if a signal stopped the run before. The state is saved then."""
        source = DeviceBatches(batches, self.device)
        pending = PendingSteps(self.device, self.processes, self.state.clock)
        self.saving.step = self.state.step
        for step in range(self.state.step, self.schedule.total_steps):
            with self.state.clock.measure("train"):
                batch, waited = self._take(source, pending)
                if batch is not None:
                    self._step(self.schedule.plan_at(step), batch, waited, source, pending)
                is_settled = batch is None or self._is_due(step + 1, pending)
                if is_settled:
                    for record in pending.read(self.saving.step):
                        progress.report(record)
            if batch is None:
                self._save()
                return False
            self.state.step = step + 1
            self.state.epoch = self.schedule.epoch_before(step + 1)
            if is_settled:
                should_stop, should_save = self._agree(pending)
                is_milestone = self.state.step in self.milestones
                if should_stop or should_save or is_milestone:
                    self._save()
                if should_stop:
                    return False
                if is_milestone:
                    self.evaluate()
        self.loaded.share_levels()
        return True

    @property
    def device(self) -> torch.device:
        """The device that trains."""
        return self.train_step.normalizer.device

    def _take(self, source: DeviceBatches, pending: PendingSteps) -> tuple[Batch | None, float]:
        """Return the clips of the next step and the seconds of waiting; None if a signal ended the wait."""
        is_alone = self.processes.count == 1
        pending.timer.start()
        start = time.perf_counter()
        try:
            with self.stop.at_once() if is_alone else nullcontext():
                return source.take(), time.perf_counter() - start
        except Interrupted:
            pending.timer.drop()
            return None, 0.0

    def _step(
        self,
        plan: StepPlan,
        batch: Batch,
        waited: float,
        source: DeviceBatches,
        pending: PendingSteps,
    ) -> None:
        """Give one step to the device, and fetch the clips of the next one while the device computes."""
        self.loaded.note(batch)
        check_clips(batch)
        set_lr(self.state.optimizer, plan.lr)
        seed_step(self.seed, plan.step)
        first_clip = self.processes.rank * plan.clips // self.processes.count
        reason = None
        try:
            draws = Draws(self.seed, plan.step, first_clip)
            loss = self.train_step(batch, plan.num_bn_groups, draws)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = first_line(error)
        # The message comes after the block, since the error holds all memory of the step as long as it lives.
        if reason is not None:
            raise TrainingError(self._out_of_memory(plan, batch, reason))
        pending.timer.stop()
        start = time.perf_counter()
        source.fetch_ahead()
        if pending.timer.is_device_idle():  # else it computed meanwhile, and nothing waited
            waited += time.perf_counter() - start
        self.state.clock.add("input_wait", waited)
        pending.steps.append((plan, waited, loss))

    def _out_of_memory(self, plan: StepPlan, batch: Batch, reason: str) -> str:
        shape = StepShape(plan.frames, plan.crop, len(batch.clips), plan.num_bn_groups)
        shapes = [*step_counts(self.schedule, self.processes.count)]
        may_try = self.processes.count == 1 and self.device.type == "cuda"
        text = shape_message(reason, shape, shapes, self.train_step, batch, may_try)
        return f"step {plan.step} (epoch {plan.epoch:.2f}): {text}"

    def _is_due(self, step: int, pending: PendingSteps) -> bool:
        """Return whether to settle after ``step`` steps; all processes find the same."""
        is_periodic = step % self.settle_steps == 0 or step == self.schedule.total_steps
        is_late = len(pending.steps) * pending.step_seconds >= MAX_SETTLE_SECONDS
        return is_periodic or is_late or step in self.milestones

    def _agree(self, pending: PendingSteps) -> tuple[bool, bool]:
        """Agree with the other processes on (should stop, should save), and share what else they must know.

        A signal counts in whichever process it comes. Rank 0's clock says when the next checkpoint is due. Raises
        InputError in all processes if too many videos are unusable.
        """
        should_save = self.stop.should_save or (self.processes.is_main and self.saving.is_late())
        flags = (self.stop.requested, should_save, self.loaded.has_news)
        should_stop, should_save, has_news = dist.any_true(self.processes, flags, self.device)
        if self.settle_steps > 1:
            seconds = torch.tensor([pending.step_seconds], device=self.device)
            pending.step_seconds = dist.max_(self.processes, seconds).item()
        if has_news:
            self.loaded.share_unusable()
        return should_stop, should_save

    def _save(self) -> None:
        if self.state.step != self.saving.step:  # else it is on disk as it is
            self.loaded.share_levels()
            self.saving.write()
        self.stop.saved()
        self.saving.step, self.saving.time = self.state.step, time.perf_counter()


@dataclass
class Saving:
    """Checkpoints: ``write`` writes one, the last was of ``step``, and after ``seconds`` the next is due."""

    write: Callable[[], None]
    seconds: float
    step: int = -1
    time: float = field(default_factory=time.perf_counter)

    def is_late(self) -> bool:
        """Return whether the next checkpoint is due."""
        return time.perf_counter() - self.time > self.seconds


@dataclass
class LoadedClips:
    """What the loader says of the clips: which videos failed, and where the clips came from.

    Each process knows that of its own clips, until the processes share it. ``check_unusable`` raises InputError
    if too many videos failed.
    """

    state: State
    processes: Processes
    check_unusable: Callable[[], None]
    has_news: bool = False
    _levels: Counter[str] = field(default_factory=Counter)

    def note(self, batch: Batch) -> None:
        """Remember what came with the clips of this process."""
        found = {i: reason for i, reason in batch.unusable if i not in self.state.unusable}
        self.state.unusable.update(found)
        self.has_news = self.has_news or bool(found)
        self._tell(found)
        self._levels.update(batch.levels)

    def share_unusable(self) -> None:
        """Let all processes know the same unusable videos. All must call it."""
        known = self.state.unusable
        self.has_news = False
        self.state.unusable = dist.merge(self.processes, known)
        self._tell({i: self.state.unusable[i] for i in sorted(self.state.unusable.keys() - known)})
        self.check_unusable()

    def share_levels(self) -> None:
        """Add the counts of all processes to the state. All must call it."""
        self.state.levels += dist.total(self.processes, self._levels)
        self._levels = Counter()

    def _tell(self, found: dict[int, str]) -> None:
        if self.processes.is_main:
            for reason in found.values():
                LOGGER.warning("unusable video, replaced: %s", reason)


class PendingSteps:
    """Steps that were given to the device: (plan, seconds of waiting for clips, loss that is still on the device).

    Their losses and times are read together, because each reading waits for a GPU. ``step_seconds``: how long the
    latest step took that was read.
    """

    def __init__(self, device: torch.device, processes: Processes, clock: Clock) -> None:
        self.timer = StepTimer(device)
        self.steps: list[tuple[StepPlan, float, Tensor]] = []
        self.step_seconds = 0.0
        self._processes, self._clock = processes, clock
        self._first_seconds: dict[tuple[int, int, int], float] = {}
        self._losses: deque[float] = deque(maxlen=NUM_LOSSES)

    def read(self, saved_step: int) -> Iterator[StepRecord]:
        """Wait for the pending steps, and yield a record of each. All processes must call it.

        Raises TrainingError at a loss that is not finite; ``saved_step`` is the step of the last checkpoint.
        """
        steps, self.steps = self.steps, []
        if not steps:
            return
        # The loss of the global mini-batch. It is finite in all processes or in none.
        losses = dist.mean_(self._processes, torch.stack([loss for _, _, loss in steps])).tolist()
        for (plan, waited, _), loss, seconds in zip(steps, losses, self.timer.read(), strict=True):
            if not math.isfinite(loss):
                raise TrainingError(self._not_finite(plan, loss, saved_step))
            self._losses.append(loss)
            self.step_seconds = seconds
            self._count_warmup((plan.frames, plan.crop, plan.clips), seconds - waited)
            yield StepRecord(
                step=plan.step,
                epoch=plan.epoch,
                phase=plan.phase,
                frames=plan.frames,
                crop=plan.crop,
                clips=plan.clips,
                lr=plan.lr,
                loss=loss,
                step_seconds=seconds,
                input_wait_seconds=waited,
            )

    def _count_warmup(self, shape: tuple[int, int, int], seconds: float) -> None:
        """Count as warm-up what the first step of a shape took longer than its second."""
        first = self._first_seconds.get(shape)
        if first is None:
            self._first_seconds[shape] = seconds
        elif first > 0:
            self._clock.add("shape_warmup", max(0.0, first - seconds))
            self._first_seconds[shape] = 0.0

    def _not_finite(self, plan: StepPlan, loss: float, saved_step: int) -> str:
        recent = ", ".join(f"{one:.4g}" for one in self._losses) or "none"
        saved = f"The last checkpoint, after step {saved_step}," if saved_step else "The start"
        return (
            f"step {plan.step} (epoch {plan.epoch:.2f}, {plan.clips} clips of {plan.frames} frames x "
            f"{plan.crop}² pixels, lr {plan.lr:.4g}): the loss is {loss}; the losses before it: {recent}. {saved} "
            "is from before that: started again as it is, the run comes to the same loss. A smaller "
            "SOLVER.BASE_LR or more SOLVER.WARMUP_EPOCHS may help, in another --output or with --override"
        )
