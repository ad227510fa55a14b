"""The loop: one schedule, one loader, one model, from the first step to the last."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mgexp import dist
from mgexp.data.clips import Batch
from mgexp.data.device_batches import DeviceBatches
from mgexp.dist import Processes
from mgexp.errors import TrainingError
from mgexp.multigrid.schedule import Schedule, StepPlan
from mgexp.optim.build import set_lr
from mgexp.record.progress import LOGGER, Progress, StepRecord
from mgexp.record.step_timer import StepTimer
from mgexp.stop import StopRequest
from mgexp.train.checkpoint import State
from mgexp.train.inputs import check_clips
from mgexp.train.step import TrainStep, seed_step


@dataclass(frozen=True)
class _Done:
    """A step that was given to the device: what is known of it without waiting."""

    plan: StepPlan
    input_wait_seconds: float
    loss: Tensor


@dataclass
class Loop:
    """Trains ``state`` along ``schedule``; ``save`` and ``evaluate`` are called at its milestones.

    Every ``settle_steps`` steps, and before anything else happens, losses and times are read from the device, and
    the processes agree whether to stop: in between, none waits for its device or for another's word.
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
    _has_news: bool = False
    _last_save: float = field(default_factory=time.perf_counter)

    def run(self, batches: Iterator[Batch], progress: Progress) -> bool:
        """Trains to the end; False if a signal stopped it, saved, before."""
        source, timer = DeviceBatches(batches, self.device), StepTimer(self.device)
        for step in range(self.state.step, self.schedule.total_steps):
            with self.state.clock.measure("train"):
                self._step(self.schedule.plan_at(step), source, timer)
                is_settled = self._is_due(step + 1)
                if is_settled:
                    self._settle(timer, progress)
            self.state.step = step + 1
            self.state.epoch = self.schedule.epoch_before(step + 1)
            if is_settled and not self._go_on():
                return False
        return True

    def _is_due(self, step: int) -> bool:
        is_periodic = step % self.settle_steps == 0 or step == self.schedule.total_steps
        return is_periodic or step in self.milestones

    def _go_on(self) -> bool:
        """Saves and evaluates where it is time to; False if a signal stops the run."""
        should_stop, should_save = self._agree()
        if self.state.step in self.milestones:
            self._save()
            self.evaluate()
        elif should_stop:
            self._save()
            return False
        elif should_save or time.perf_counter() - self._last_save > self.checkpoint_seconds:
            self._save()
        return True

    def _step(self, plan: StepPlan, source: DeviceBatches, timer: StepTimer) -> None:
        timer.start()
        start = time.perf_counter()
        batch = source.take()
        waited = time.perf_counter() - start
        self._note_unusable(batch)
        self.state.levels.update(batch.levels)
        check_clips(batch)
        set_lr(self.state.optimizer, plan.lr)
        seed_step(self.seed, plan.step, self.processes.rank)
        loss = self.train_step(batch, plan.num_bn_groups)
        timer.stop()
        start = time.perf_counter()
        source.fetch_ahead()
        if timer.is_device_idle():  # else it computed meanwhile, and nothing waited
            waited += time.perf_counter() - start
        self.state.clock.add("input_wait", waited)
        self._done.append(_Done(plan, waited, loss))

    def _settle(self, timer: StepTimer, progress: Progress) -> None:
        """Reads from the device what became of the steps since the last time. Raises TrainingError."""
        done, self._done = self._done, []
        losses = torch.stack([one.loss for one in done]).tolist()
        for one, loss, seconds in zip(done, losses, timer.read(), strict=True):
            plan, waited = one.plan, one.input_wait_seconds
            _check_loss(plan, loss)
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
        for index, reason in batch.unusable:
            if index not in self.state.unusable:
                self.state.unusable[index] = reason
                self._has_news = True
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
        """Shares unusable videos among the processes, stops all where they are too many.

        Returns whether to stop, and whether to save.
        """
        flags = (self.stop.requested, self._has_news, self.stop.should_save)
        should_stop, has_news, should_save = dist.any_true(self.processes, flags, self.device)
        if has_news:
            self._has_news = False
            self.state.unusable = dist.merge(self.processes, self.state.unusable)
            self.check_unusable()
        return should_stop, should_save

    def _save(self) -> None:
        self.save()
        self.stop.saved()
        self._last_save = time.perf_counter()


def _check_loss(plan: StepPlan, loss: float) -> None:
    if not math.isfinite(loss):
        raise TrainingError(
            f"step {plan.step} (epoch {plan.epoch:.2f}, {plan.clips} clips of {plan.frames} frames x "
            f"{plan.crop}² pixels, lr {plan.lr:.4g}): the loss is {loss}; a smaller SOLVER.BASE_LR or more "
            "SOLVER.WARMUP_EPOCHS may help"
        )
