"""Evaluations of a run: precise batch norm on a copy, views of the videos, a line in evaluations.jsonl.

The full protocol also leaves its scores, and is gone on with where a kill interrupts it: every
``save_seconds`` each process saves the part that it has done, and the same command evaluates the same
weights (model.pt) from there. A part counts only for the same step, videos, protocol and number of
processes, and none after a change that --override let pass. A signal ends an evaluation after the batch
under way: in all processes, with Interrupted, and the part is saved before.
"""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import nn

from mgexp import dist
from mgexp.data.records import Record
from mgexp.dist import Processes
from mgexp.record.confusion import count_confusions, write_confusion
from mgexp.record.files import append_jsonl, atomic_file
from mgexp.record.progress import LOGGER
from mgexp.record.run_dir import RunDir
from mgexp.record.torch_file import DamagedFileError, check_whole, load_torch, save_torch
from mgexp.stop import Interrupted, StopRequest
from mgexp.train.checkpoint import State
from mgexp.train.evaluate import Evaluation, Scores, check_decoded, score_views
from mgexp.train.leaving import leaving_together, watched_together
from mgexp.train.partial import Partial
from mgexp.train.precise_bn import with_precise_bn
from mgexp.train.step import Normalizer
from mgexp.train.task import Task, metrics_text


@dataclass(frozen=True)
class Protocol:
    """Which views are scored: ``num_clips`` in time, ``num_crops`` of each, of the videos of ``records``.

    ``batches(first)`` loads those of this process, ``batch_size`` views at a time, the first ``first`` batches
    left out.
    """

    batches: Callable[[int], Iterable[Any]]
    records: tuple[Record, ...]
    num_clips: int
    num_crops: int
    batch_size: int
    is_full: bool
    frame_order: str = "forward"

    @property
    def num_views(self) -> int:
        """Views of a video."""
        return self.num_clips * self.num_crops

    @property
    def name(self) -> str:
        """What tells the files of two protocols apart: 10x3_forward."""
        return f"{self.num_clips}x{self.num_crops}_{self.frame_order}"

    def fingerprint(self) -> str:
        """What identifies the videos, their labels and the batches."""
        lines = [f"{self.batch_size} views at a time", *(record.line() for record in self.records)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class PreciseBn:
    """Training clips at the full shape for batch-norm statistics; see ``precise_bn``."""

    batches: Callable[[], Iterable[Any]]
    num_groups: int


@dataclass(frozen=True)
class Evaluator:
    """Scores the model of a run without changing it; the clock of training must not run meanwhile.

    ``tell`` is called with each line of evaluations.jsonl.
    """

    run_dir: RunDir
    normalizer: Normalizer
    processes: Processes
    task: Task
    precise_bn: PreciseBn | None
    save_seconds: float
    stop: StopRequest = field(default_factory=StopRequest)
    tell: Callable[[Mapping[str, Any]], None] = lambda line: None

    def ready_model(self, state: State) -> nn.Module:
        """A copy of the model as it is evaluated: with precise statistics where these are asked for."""
        clone = copy.deepcopy(state.model)
        if self.precise_bn is None:
            return clone
        with state.clock.measure("precise_bn"):
            batches = self._watched_together(self.precise_bn.batches())
            return with_precise_bn(clone, batches, self.precise_bn.num_groups, self.normalizer)

    def evaluate(self, model: nn.Module, state: State, protocol: Protocol) -> Evaluation:
        """Scores ``model`` and records a line; of the full protocol also the scores."""
        scores = Scores(len(protocol.records), self.task, self.normalizer.device)
        partial = self._partial(state, protocol)
        self._count_seconds(state, partial.go_on(scores))
        with state.clock.measure("evaluate"):
            batches = self.stop.watch(protocol.batches(partial.num_batches))
            after_batch = functools.partial(partial.count_batch, scores)
            with leaving_together(self.processes, self.normalizer.device):
                try:
                    errors = score_views(model, batches, scores, self.normalizer, after_batch)
                except Interrupted:
                    partial.save(scores)
                    raise
            check_decoded(dist.merge(self.processes, errors))
            partial.save(scores)
            found = scores.reduce(self.processes)
        if self.processes.is_main:
            self._record(found, state, protocol)
        return found

    def evaluate_finally(self, state: State, protocol: Protocol) -> Evaluation:
        """The full protocol at the end; the evaluated weights are kept, before a part of it is.

        Where the main process has a part of an earlier start, the kept weights are evaluated on.
        """
        partial = self._partial(state, protocol)
        has_part = self.processes.is_main and partial.read() is not None and self._has_model()
        (goes_on,) = dist.any_true(self.processes, (has_part,), self.normalizer.device)
        if goes_on:
            LOGGER.info("going on with the final evaluation")
            model = copy.deepcopy(state.model)
            model.load_state_dict(load_torch(self.run_dir.model))
        else:
            partial.drop()
            model = self.ready_model(state)
            if self.processes.is_main:
                save_torch(self.run_dir.model, model.state_dict())
        found = self.evaluate(model, state, protocol)
        if (
            self.processes.is_main and found.labels.dim() == 1
        ):  # a video of many labels is not taken for another
            confused = count_confusions(found.labels.tolist(), found.scores.argmax(1).tolist())
            write_confusion(self.run_dir.confusion_csv, confused)
        return found

    def _watched_together(self, batches: Iterable[Any]) -> Iterator[Any]:
        """BN groups may span processes, which then wait for each other in each batch."""
        return watched_together(self.stop, batches, self.processes, self.normalizer.device)

    def _has_model(self) -> bool:
        """Whether the weights that a part scored are there, whole."""
        try:
            check_whole(self.run_dir.model)
        except (FileNotFoundError, DamagedFileError) as error:
            LOGGER.warning("the final evaluation begins anew: %s", error)
            return False
        return True

    def _partial(self, state: State, protocol: Protocol) -> Partial:
        rank, count = self.processes.rank, self.processes.count
        if not protocol.is_full:
            return Partial(None)
        path = self.run_dir.evaluation_part(state.step, f"{protocol.name}_{rank}of{count}")
        return Partial(path, protocol.fingerprint(), self.save_seconds)

    def _count_seconds(self, state: State, seconds: float) -> None:
        """Adds those of an earlier start, of what is not done again."""
        for name in ("evaluate", "program"):
            state.clock.add(name, seconds)

    def _record(self, found: Evaluation, state: State, protocol: Protocol) -> None:
        if protocol.is_full:
            self._save_scores(found, protocol)
        line = {
            "step": state.step,
            "epoch": state.epoch,
            "train_seconds": state.clock.seconds("train"),
            **found.metrics,
            "loss": found.loss,
            "views": protocol.num_views,
            "num_videos": len(protocol.records),
            "full_protocol": protocol.is_full,
            "frame_order": protocol.frame_order,
        }
        append_jsonl(self.run_dir.evaluations_jsonl, line)
        self.tell(line)
        LOGGER.info(
            "evaluation after step %d: %s, loss %.3f (%d videos, %d views, frames %s)",
            *(state.step, metrics_text(found.metrics), found.loss),
            *(len(protocol.records), protocol.num_views, protocol.frame_order),
        )

    def _save_scores(self, found: Evaluation, protocol: Protocol) -> None:
        """Arrays ``videos`` (paths), ``labels``, ``scores`` (videos, classes) over all views, ``num_views``."""
        with atomic_file(self.run_dir.scores(protocol.name)) as file:
            np.savez(
                file,
                videos=np.array([record.path for record in protocol.records]),
                labels=found.labels.numpy(),
                scores=found.scores.numpy(),
                num_views=np.array(protocol.num_views),
            )
