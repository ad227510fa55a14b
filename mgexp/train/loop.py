"""The loop: one schedule, one loader, one model, from the first step to the last."""

from __future__ import annotations

import bisect
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
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
from mgexp.multigrid.schedule import Schedule, StepPlan
from mgexp.multigrid.steps import StepShape, step_counts
from mgexp.optim.build import set_lr
from mgexp.run.clock import StepTimer
from mgexp.run.log import LOGGER, Progress, StepRecord
from mgexp.stop import Interrupted, StopRequest
from mgexp.train.checkpoint import State
from mgexp.train.faults import first_line, is_out_of_memory, shape_message
from mgexp.train.setup import check_clips
from mgexp.train.step import TrainStep, seed_step


def milestones(schedule: Schedule, num_evaluations: int) -> tuple[int, ...]:
    """Numbers of finished steps after which to evaluate, ascending; the last is the schedule's end.

    Cost is clips × frames × crop², which is what a step's time follows.
    """
    total = schedule.cost_before(schedule.total_steps)
    steps = range(schedule.total_steps + 1)
    found = [
        bisect.bisect_left(steps, total * i / num_evaluations, key=schedule.cost_before)
        for i in range(1, num_evaluations)
    ]
    return tuple(sorted({step for step in found if step > 0} | {schedule.total_steps}))


MAX_SETTLE_SECONDS = 5.0
"""After so long at the latest, processes agree whether to stop: Slurm and torchrun give 30 s until they kill."""
NUM_LOSSES = 5
"""Losses before one that is not finite that are told."""


@dataclass(frozen=True)
class _Done:
    """A step that was given to the device: what is known of it without waiting."""

    plan: StepPlan
    input_wait_seconds: float
    loss: Tensor


@dataclass
class Loop:
    """Trains ``state`` along ``schedule``; ``save`` and ``evaluate`` are called at its milestones.

    Every ``settle_steps`` steps, more often where these take long, and before anything else happens, losses and
    times are read from the device, and the processes agree whether to stop: in between, none waits for its device
    or for another's word. One process alone also stops while it waits for clips.
    """

    state: State
    train_step: TrainStep
    schedule: Schedule
    device: torch.device
    processes: Processes
    seed: int
    milestones: tuple[int, ...]
    checkpoint_seconds: float
    settle_steps: int
    stop: StopRequest
    save: Callable[[], None]
    evaluate: Callable[[], object]
    check_unusable: Callable[[], None]
    _done: list[_Done] = field(default_factory=list)
    _seen_shapes: dict[tuple[int, int, int], float] = field(default_factory=dict)
    _levels: Counter[str] = field(default_factory=Counter)
    _has_news: bool = False
    _last_save: float = field(default_factory=time.perf_counter)
    _saved_step: int = -1
    _step_seconds: float = 0.0
    _losses: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_LOSSES))

    def run(self, batches: Iterator[Batch], progress: Progress) -> bool:
        """Trains to the end; False if a signal stopped it, saved, before."""
        source, timer = DeviceBatches(batches, self.device), StepTimer(self.device)
        self._saved_step = self.state.step
        for step in range(self.state.step, self.schedule.total_steps):
            with self.state.clock.measure("train"):
                batch, waited = self._take(source, timer)
                if batch is not None:
                    self._step(self.schedule.plan_at(step), batch, waited, source, timer)
                is_settled = batch is None or self._is_due(step + 1)
                if is_settled:
                    self._settle(timer, progress)
            if batch is None:
                self._save()
                return False
            self.state.step = step + 1
            self.state.epoch = self.schedule.epoch_before(step + 1)
            if is_settled and not self._go_on():
                return False
        self._share_levels()
        return True

    def _is_due(self, step: int) -> bool:
        is_periodic = step % self.settle_steps == 0 or step == self.schedule.total_steps
        is_late = len(self._done) * self._step_seconds >= MAX_SETTLE_SECONDS
        return is_periodic or is_late or step in self.milestones

    def _go_on(self) -> bool:
        """Saves and evaluates where it is time to; False if a signal stops the run."""
        should_stop, should_save = self._agree()
        if should_stop:
            self._save()
            return False
        if self.state.step in self.milestones:
            self._save()
            self.evaluate()
        elif should_save:
            self._save()
        return True

    def _take(self, source: DeviceBatches, timer: StepTimer) -> tuple[Batch | None, float]:
        """The clips of the next step, and how long they were waited for; None where a signal ends the wait."""
        is_alone = self.processes.count == 1
        timer.start()
        start = time.perf_counter()
        try:
            with self.stop.at_once() if is_alone else nullcontext():
                return source.take(), time.perf_counter() - start
        except Interrupted:
            timer.drop()
            return None, 0.0

    def _step(
        self, plan: StepPlan, batch: Batch, waited: float, source: DeviceBatches, timer: StepTimer
    ) -> None:
        self._note_unusable(batch)
        self._levels.update(batch.levels)
        check_clips(batch)
        set_lr(self.state.optimizer, plan.lr)
        seed_step(self.seed, plan.step)
        loss = self._train(plan, batch)
        timer.stop()
        start = time.perf_counter()
        source.fetch_ahead()
        if timer.is_device_idle():  # else it computed meanwhile, and nothing waited
            waited += time.perf_counter() - start
        self.state.clock.add("input_wait", waited)
        self._done.append(_Done(plan, waited, loss))

    def _train(self, plan: StepPlan, batch: Batch) -> Tensor:
        try:
            first_clip = self.processes.rank * plan.clips // self.processes.count
            return self.train_step(
                batch, plan.num_bn_groups, Draws(self.seed, plan.step, first_clip)
            )
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = first_line(error)
        # Here the error is gone, and with it what the step held in memory.
        shape = StepShape(plan.frames, plan.crop, len(batch.clips), plan.num_bn_groups)
        shapes = [*step_counts(self.schedule, self.processes.count)]
        may_try = self.processes.count == 1 and self.device.type == "cuda"
        text = shape_message(reason, shape, shapes, self.train_step, batch, may_try)
        raise TrainingError(f"step {plan.step} (epoch {plan.epoch:.2f}): {text}")

    def _settle(self, timer: StepTimer, progress: Progress) -> None:
        """Reads from the device what became of the steps since the last time. Raises TrainingError."""
        done, self._done = self._done, []
        # Of the global mini-batch; where one process has no finite loss, none has.
        means = (
            dist.mean_(self.processes, torch.stack([one.loss for one in done])) if done else None
        )
        losses = means.tolist() if means is not None else []
        for one, loss, seconds in zip(done, losses, timer.read(), strict=True):
            plan, waited = one.plan, one.input_wait_seconds
            self._check_loss(plan, loss)
            self._step_seconds = seconds
            self._count_warmup((plan.frames, plan.crop, plan.clips), seconds - waited)
            progress.report(
                StepRecord(
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
            )

    def _note_unusable(self, batch: Batch) -> None:
        found = {i: reason for i, reason in batch.unusable if i not in self.state.unusable}
        self.state.unusable.update(found)
        self._has_news = self._has_news or bool(found)
        self._tell_unusable(found)

    def _tell_unusable(self, found: dict[int, str]) -> None:
        if self.processes.is_main:
            for reason in found.values():
                LOGGER.warning("unusable video, replaced: %s", reason)

    def _count_warmup(self, shape: tuple[int, int, int], seconds: float) -> None:
        """Shape warm-up: what the first step of a shape took longer than its second."""
        first = self._seen_shapes.get(shape)
        if first is None:
            self._seen_shapes[shape] = seconds
        elif first > 0:
            self.state.clock.add("shape_warmup", max(0.0, first - seconds))
            self._seen_shapes[shape] = 0.0

    def _agree(self) -> tuple[bool, bool]:
        """Whether to stop, and whether to save: by a signal to any process, and by the clock of the first.

        Shares unusable videos among the processes, and stops all where they are too many.
        """
        is_late = time.perf_counter() - self._last_save > self.checkpoint_seconds
        saves = self.stop.should_save or (self.processes.is_main and is_late)
        flags = (self.stop.requested, saves, self._has_news)
        should_stop, should_save, has_news = dist.any_true(self.processes, flags, self.device)
        if self.settle_steps > 1:  # all must find the same steps due
            seconds = torch.tensor([self._step_seconds], device=self.device)
            self._step_seconds = dist.max_(self.processes, seconds).item()
        if has_news:
            self._share_unusable()
        return should_stop, should_save

    def _share_unusable(self) -> None:
        self._has_news = False
        known, self.state.unusable = (
            self.state.unusable,
            dist.merge(self.processes, self.state.unusable),
        )
        new = self.state.unusable.items() - known.items()
        self._tell_unusable({i: reason for i, reason in sorted(new) if i not in known})
        self.check_unusable()

    def _share_levels(self) -> None:
        self.state.levels += dist.total(self.processes, self._levels)
        self._levels = Counter()

    def _save(self) -> None:
        if self.state.step != self._saved_step:  # else it is on disk as it is
            self._share_levels()
            self.save()
        self.stop.saved()
        self._saved_step, self._last_save = self.state.step, time.perf_counter()

    def _check_loss(self, plan: StepPlan, loss: float) -> None:
        if not math.isfinite(loss):
            raise TrainingError(_loss_text(plan, loss, self._losses, self._saved_step))
        self._losses.append(loss)


def _loss_text(plan: StepPlan, loss: float, before: Sequence[float], saved_step: int) -> str:
    recent = ", ".join(f"{one:.4g}" for one in before) or "none"
    saved = f"The last checkpoint, after step {saved_step}," if saved_step else "The start"
    return (
        f"step {plan.step} (epoch {plan.epoch:.2f}, {plan.clips} clips of {plan.frames} frames x "
        f"{plan.crop}² pixels, lr {plan.lr:.4g}): the loss is {loss}; the losses before it: {recent}. {saved} "
        "is from before that: started again as it is, the run comes to the same loss. A smaller SOLVER.BASE_LR or "
        "more SOLVER.WARMUP_EPOCHS may help, in another --output or with --override"
    )
