"""The loop: one schedule, one loader, one model, from the first step to the last."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from mgexp import dist
from mgexp.data.clips import Batch
from mgexp.dist import Processes
from mgexp.errors import TrainingError
from mgexp.multigrid.batchnorm import set_num_groups
from mgexp.multigrid.schedule import Schedule, StepPlan
from mgexp.optim.build import set_lr
from mgexp.record.progress import LOGGER, Progress, StepRecord
from mgexp.stop import StopRequest
from mgexp.train.checkpoint import State
from mgexp.train.inputs import clips_of
from mgexp.train.step import Normalizer, seed_step, train_step
from mgexp.train.task import Loss


@dataclass
class Loop:
    """Trains ``state`` along ``schedule``; ``save`` and ``evaluate`` are called at its milestones.

    ``model`` is what computes gradients: the state's model, or its wrapper for several processes.
    """

    state: State
    model: nn.Module
    schedule: Schedule
    normalizer: Normalizer
    loss: Loss
    processes: Processes
    seed: int
    milestones: tuple[int, ...]
    checkpoint_seconds: float
    stop: StopRequest
    save: Callable[[], None]
    evaluate: Callable[[], object]
    check_unusable: Callable[[], None]
    _seen_shapes: dict[tuple[int, int, int], float] = field(default_factory=dict)
    _has_news: bool = False
    _last_save: float = field(default_factory=time.perf_counter)

    def run(self, batches: Iterator[Batch], progress: Progress) -> bool:
        """Trains to the end; False if a signal stopped it, saved, before."""
        for step in range(self.state.step, self.schedule.total_steps):
            plan = self.schedule.plan_at(step)
            with self.state.clock.measure("train"):
                record = self._step(plan, batches)
                progress.report(record)
            self.state.step = step + 1
            self.state.epoch = self.schedule.epoch_before(step + 1)
            should_stop = self._agree()
            if self.state.step in self.milestones:
                self._save()
                self.evaluate()
            elif should_stop:
                self._save()
                return False
            elif time.perf_counter() - self._last_save > self.checkpoint_seconds:
                self._save()
        return True

    def _step(self, plan: StepPlan, batches: Iterator[Batch]) -> StepRecord:
        start = time.perf_counter()
        with self.state.clock.measure("input_wait"):
            batch = next(batches)
        waited = time.perf_counter() - start
        self._note_unusable(batch)
        self.state.levels.update(batch.levels)
        loss = self._train_on(plan, batch)
        seconds = time.perf_counter() - start
        self._count_warmup((plan.frames, plan.crop, plan.clips), seconds - waited)
        return StepRecord(
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

    def _train_on(self, plan: StepPlan, batch: Batch) -> float:
        set_lr(self.state.optimizer, plan.lr)
        set_num_groups(self.state.model, plan.num_bn_groups)
        seed_step(self.seed, plan.step, self.processes.rank)
        self.model.train()
        labels = batch.labels.to(self.normalizer.device, non_blocking=True)
        try:
            clips = self.normalizer(clips_of(batch))
            loss = train_step(self.model, self.state.optimizer, clips, labels, self.loss)
        except TrainingError as error:
            raise TrainingError(
                f"step {plan.step} (epoch {plan.epoch:.2f}, {plan.clips} clips of {plan.frames} frames x "
                f"{plan.crop}² pixels, lr {plan.lr:.4g}): {error}; a smaller SOLVER.BASE_LR or more "
                "SOLVER.WARMUP_EPOCHS may help"
            ) from error
        if self.normalizer.device.type == "cuda":
            torch.cuda.synchronize()
        return loss

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

    def _agree(self) -> bool:
        """Shares unusable videos among the processes, stops all where they are too many; whether to stop."""
        flags = (self.stop.requested, self._has_news)
        should_stop, has_news = dist.any_true(self.processes, flags, self.normalizer.device)
        if has_news:
            self._has_news = False
            self.state.unusable = dist.merge(self.processes, self.state.unusable)
            self.check_unusable()
        return should_stop

    def _save(self) -> None:
        self.save()
        self._last_save = time.perf_counter()
