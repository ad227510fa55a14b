"""The training loop. It keeps one schedule, one loader and one model from the first step to the last."""

from __future__ import annotations

import bisect
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mgexp import dist
from mgexp.data.batches import Batch, DeviceBatches
from mgexp.dist import Processes
from mgexp.errors import TrainingError
from mgexp.models.layers import Draws
from mgexp.multigrid.schedule import Schedule, StepPlan, StepShape
from mgexp.optim.build import set_rates
from mgexp.run.clock import Clock, StepTimer
from mgexp.run.log import LOGGER, Progress, StepRecord
from mgexp.run.other_programs import OtherPrograms, other_cores
from mgexp.stop import Interrupted, StopRequest
from mgexp.train.checkpoint import CALMER, State
from mgexp.train.faults import explaining_memory
from mgexp.train.step import TrainStep, check_clips, seed_step

MAX_SETTLE_SECONDS = 5.0
"""The longest time between two settlements, in seconds (see ``Loop``).

Slurm and torchrun kill a process 30 s after their signal. Within this time it must settle and save.
"""
FIRST_CHECKPOINT_SECONDS = 60.0
"""The longest time to the first checkpoint of a run. Before it, a kill loses the whole run."""
MUCH_WAITING, MUCH_BUSY = 0.3, 0.25
"""The log warns of a larger share of waiting for clips, and of more cores per thread that others keep busy.
Assumption."""
NUM_LOSSES = 5
"""The message about a loss that is not finite shows this many earlier losses."""


def milestones(schedule: Schedule, num_evaluations: int) -> tuple[int, ...]:
    """Return the steps after which to evaluate, ascending. The last one is the end of the schedule.

    They are evenly spaced by cost, that is by clips × frames × crop². The time of a step is about
    proportional to this number.
    """
    total = schedule.cost_before(schedule.total_steps)
    steps = range(schedule.total_steps + 1)
    chosen = [
        bisect.bisect_left(steps, total * i / num_evaluations, key=schedule.cost_before)
        for i in range(1, num_evaluations)
    ]
    # In a short training several milestones fall on one step, and coarse steps may leave none before the first.
    return tuple(sorted({step for step in chosen if step > 0} | {schedule.total_steps}))


@dataclass
class Loop:
    """Training of ``state`` along ``schedule``, which saves and evaluates at the milestones.

    ``evaluate`` returns whether training goes on.

    The loop settles every ``settle_steps`` steps, more often if steps take long, and before each
    milestone. To settle means to read losses and times from the device, and to agree with the other
    processes whether to stop. Between settlements no process waits for its device or for another
    process. Between milestones the loop saves a checkpoint every ``checkpoint_seconds``, and the first
    one of a run after a minute at the latest.
    """

    state: State
    train_step: TrainStep
    schedule: Schedule
    processes: Processes
    stop: StopRequest
    seed: int
    milestones: tuple[int, ...]
    settle_steps: int
    evaluate: Callable[[], bool]
    write_checkpoint: Callable[[], None]
    checkpoint_seconds: float
    loaded: LoadedClips
    others: OtherPrograms
    _saved_step: int = -1
    _saved_time: float = field(default_factory=time.perf_counter)
    _told_slowness: bool = False

    def run(self, batches: Iterator[Batch], progress: Progress) -> bool:
        """Train to the end, or as long as ``evaluate`` says; return False if a signal stops it. Save the state."""
        source = DeviceBatches(batches, self.device)
        pending = PendingSteps(self.device, self.processes, self.state.clock)
        self._saved_step = self.state.step
        self.others.start()
        for step in range(self.state.step, self.schedule.total_steps):
            # Only this block is training. Saving and evaluation come after it, off the clock.
            with self.state.clock.measure("train"):
                batch, waited = self._take(source, pending)
                if batch is not None:
                    self._step(self.schedule.plan_at(step), batch, waited, source, pending)
                is_settled = batch is None or self._is_due(step + 1, pending)
                if is_settled:
                    for record in pending.read(self._saved_step):
                        progress.report(record)
            if batch is None:
                self._save()
                return False
            self.state.step = step + 1
            self.state.epoch = self.schedule.epoch_before(step + 1)
            if is_settled:
                should_stop, should_save = self._agree(pending)
                is_milestone = self.state.step in self.milestones
                # We save before the evaluation, so a kill during it costs no step of training.
                if should_stop or should_save or is_milestone:
                    self._save()
                if should_stop:
                    return False
                if is_milestone and not self.evaluate():
                    break
        # A kill during the final evaluation then costs no step of training.
        self._save()
        return True

    @property
    def device(self) -> torch.device:
        return self.train_step.normalizer.device

    def _take(self, source: DeviceBatches, pending: PendingSteps) -> tuple[Batch | None, float]:
        """Return the clips of the next step and the seconds of waiting; None if a signal ended the wait."""
        pending.timer.start()
        start = time.perf_counter()
        try:
            with self._wait():
                return source.take(), time.perf_counter() - start
        except Interrupted:
            pending.timer.drop()
            return None, 0.0

    def _wait(self) -> AbstractContextManager[None]:
        """Return the context of a wait for clips, which a signal ends in a run of one process."""
        # In a larger run the other processes would begin the step and wait there for this one, so it stops at the
        # next settlement instead.
        return self.stop.at_once() if self.processes.count == 1 else nullcontext()

    def _step(
        self,
        plan: StepPlan,
        batch: Batch,
        waited: float,
        source: DeviceBatches,
        pending: PendingSteps,
    ) -> None:
        """Start one step on the device, and fetch the clips of the next step while the device computes."""
        # Before the check, so that the log names the videos that failed where an empty batch ends the run.
        self.loaded.note(batch)
        check_clips(batch)
        set_rates(self.state.optimizer, plan.lr, plan.weight_decay_factor)
        seed_step(self.seed, plan.step)
        first_clip = self.processes.rank * plan.clips // self.processes.count
        draws = Draws(self.seed, plan.step, first_clip)
        shape = StepShape(plan.frames, plan.crop, len(batch.clips), plan.num_bn_groups)
        with explaining_memory(f"step {plan.step} (epoch {plan.epoch:.2f}), {shape}"):
            loss = self.train_step(batch, plan.num_bn_groups, draws)
            if self.state.average:
                self.state.average.update(plan.step + 1)
        # A GPU still computes here. So the seconds from now to ``stop`` cost training only what the GPU idles.
        pending.timer.computed()
        # After a signal there are no clips ahead, and the next ``_take`` ends the run.
        with suppress(Interrupted), self._wait():
            source.fetch_ahead()
        pending.timer.stop()
        pending.steps.append((plan, waited, loss))

    def _is_due(self, step: int, pending: PendingSteps) -> bool:
        """Return whether to settle after ``step`` steps. All processes get the same answer."""
        is_periodic = step % self.settle_steps == 0 or step == self.schedule.total_steps
        # The time of a step is 0 until the first one is read.
        seconds = pending.step_seconds or MAX_SETTLE_SECONDS
        is_late = len(pending.steps) * seconds >= MAX_SETTLE_SECONDS
        return is_periodic or is_late or step in self.milestones

    def _agree(self, pending: PendingSteps) -> tuple[bool, bool]:
        """Agree with the other processes on (should stop, should save), and share new unusable videos.

        A signal to any process stops all. Raises InputError in all processes if too many videos are unusable.
        """
        # The clocks of processes differ a little, so only rank 0's decides when to save a
        # checkpoint.
        limit = self.checkpoint_seconds
        if not self._saved_step:
            limit = min(limit, FIRST_CHECKPOINT_SECONDS)
        is_late = time.perf_counter() - self._saved_time > limit
        should_save = self.stop.should_save or (self.processes.is_main and is_late)
        flags = (self.stop.requested, should_save, self.loaded.has_news)
        should_stop, should_save, has_news = dist.any_true(self.processes, flags, self.device)
        # ``_is_due`` compares this time. If each process compared its own, they would settle at
        # different steps and wait for each other for ever.
        if self.settle_steps > 1:
            seconds = torch.tensor([pending.step_seconds], device=self.device)
            pending.step_seconds = dist.max_(self.processes, seconds).item()
        if has_news:
            self.loaded.share_unusable()
        return should_stop, should_save

    def _save(self) -> None:
        # A milestone and a signal may both ask for the same step, which is then on disk already.
        if self.state.step != self._saved_step:
            # This count goes into the state, so it comes before the file.
            self.others.count()
            self.write_checkpoint()
            if self.processes.is_main and not self._told_slowness:
                lines = slow_lines(self.state.clock, torch.get_num_threads(), self.device.type)
                for line in lines:
                    LOGGER.warning("%s", line)
                self._told_slowness = bool(lines)
        self.stop.should_save = False
        # The clock starts after the writing. Else a disk that takes long would be written to all the time.
        self._saved_step, self._saved_time = self.state.step, time.perf_counter()


def slow_lines(clock: Clock, num_threads: int, device_type: str) -> list[str]:
    """Say what makes training slow, and what helps: the loader, and other programs on a CPU."""
    lines, seconds = [], clock.seconds("train")
    waiting = clock.seconds("input_wait") / seconds if seconds else 0.0
    if waiting > MUCH_WAITING:
        lines.append(
            f"{waiting:.0%} of the training time was waiting for clips: tools/prepare_data.py makes a clip store, "
            "from which they load faster; more DATA_LOADER.NUM_WORKERS help if cores are idle"
        )
    others = other_cores(clock) or 0.0
    # Threads wait for each other in every layer, so one that has lost its core delays all.
    if device_type == "cpu" and num_threads > 1 and others > MUCH_BUSY * num_threads:
        lines.append(
            f"other programs keep {others:.1f} of our cores busy, and {num_threads} threads wait for each other: "
            "TRAIN.NUM_THREADS 1 may be faster"
        )
    return lines


@dataclass
class LoadedClips:
    """The loader's reports of videos that failed.

    Each process knows only its own clips until the processes share their reports.
    ``check_unusable`` takes the reasons of all failures and raises InputError if they are too many.
    """

    state: State
    processes: Processes
    check_unusable: Callable[[Sequence[str]], None]
    has_news: bool = field(init=False)

    def __post_init__(self) -> None:
        # A signal may have ended the start before, with failures that were saved and not judged.
        self.has_news = bool(self.state.unusable)

    def note(self, batch: Batch) -> None:
        unusable = {i: reason for i, reason in batch.unusable if i not in self.state.unusable}
        self.state.unusable.update(unusable)
        self.has_news = self.has_news or bool(unusable)
        self._tell(unusable)

    def share_unusable(self) -> None:
        """Share the unusable videos of all processes. All processes must call this."""
        known = self.state.unusable
        self.has_news = False
        self.state.unusable = dist.merge(self.processes, known)
        self._tell({i: self.state.unusable[i] for i in sorted(self.state.unusable.keys() - known)})
        self.check_unusable([*self.state.unusable.values()])

    def _tell(self, unusable: dict[int, str]) -> None:
        if self.processes.is_main:
            for reason in unusable.values():
                LOGGER.warning("unusable video, replaced: %s", reason)


class PendingSteps:
    """Steps that the device has started and whose results are not read yet.

    ``steps`` holds (plan, seconds of waiting for its own clips, loss on the device) of each. Their losses
    and times are read together, because each reading waits for the GPU. ``step_seconds`` is the
    time of the latest step that was read.
    """

    def __init__(self, device: torch.device, processes: Processes, clock: Clock) -> None:
        self.timer = StepTimer(device)
        self.steps: list[tuple[StepPlan, float, Tensor]] = []
        self.step_seconds = 0.0
        self._processes, self._clock = processes, clock
        self._first_seconds: dict[tuple[int, int, int], float] = {}
        self._losses: deque[float] = deque(maxlen=NUM_LOSSES)

    def read(self, saved_step: int) -> Iterator[StepRecord]:
        """Wait for the pending steps, and yield a record of each. All processes must call this.

        Raises TrainingError if a loss is not finite; the message names ``saved_step``, the last checkpoint.
        """
        steps, self.steps = self.steps, []
        if not steps:
            return
        # The mean over processes is the loss of the global mini-batch. All processes get the same
        # number, so either all of them stop at it or none.
        losses = dist.mean_(self._processes, torch.stack([loss for _, _, loss in steps])).tolist()
        times = self.timer.read()
        for (plan, own_wait, _), loss, (seconds, idle) in zip(steps, losses, times, strict=True):
            if not math.isfinite(loss):
                raise TrainingError(self._not_finite(plan, loss, saved_step))
            self._losses.append(loss)
            self.step_seconds = seconds
            # A GPU waits for clips mostly after a step, while those of the next one are loaded.
            waited = own_wait + idle
            self._clock.add("input_wait", waited)
            # The first step of a shape also chooses kernels and allocates memory. The time by which
            # it exceeds the second step of that shape counts as warm-up. A 0 marks a shape whose
            # warm-up is counted.
            shape = (plan.frames, plan.crop, plan.clips)
            first = self._first_seconds.get(shape)
            if first is None:
                self._first_seconds[shape] = seconds - waited
            elif first > 0:
                self._clock.add("shape_warmup", max(0.0, first - (seconds - waited)))
                self._first_seconds[shape] = 0.0
            yield StepRecord(plan, loss, seconds, waited)

    def _not_finite(self, plan: StepPlan, loss: float, saved_step: int) -> str:
        recent = ", ".join(f"{value:.4g}" for value in self._losses) or "none"
        saved = f"The last checkpoint, after step {saved_step}," if saved_step else "The start"
        return (
            f"step {plan.step} (epoch {plan.epoch:.2f}, {plan.clips} clips of {plan.frames} frames x "
            f"{plan.crop}² pixels, lr {plan.lr:.4g}): the loss is {loss}; the losses before it: {recent}. {saved} "
            "is from before that step. The same start would reach the same loss; "
            f"{CALMER}"
        )
