"""Evaluations of a run: precise batch norm on a copy, views of the videos, a line in evaluations.jsonl."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn

from mgexp import dist
from mgexp.dist import Processes
from mgexp.record.confusion import write_confusion
from mgexp.record.progress import LOGGER
from mgexp.record.run_dir import RunDir, append_jsonl
from mgexp.train.checkpoint import State, save_torch
from mgexp.train.evaluate import Evaluation, evaluate
from mgexp.train.precise_bn import with_precise_bn
from mgexp.train.step import Normalizer


@dataclass(frozen=True)
class Protocol:
    """Which views are scored: ``batches`` loads ``num_views`` views of each of ``num_videos`` videos."""

    batches: Callable[[], Iterable[Any]]
    num_videos: int
    num_views: int
    is_full: bool
    frame_order: str = "forward"


@dataclass(frozen=True)
class PreciseBn:
    """Training clips at the full shape for batch-norm statistics; see ``precise_bn``."""

    batches: Callable[[], Iterable[Any]]
    num_batches: int
    num_groups: int


@dataclass(frozen=True)
class Evaluator:
    """Scores the model of a run without changing it; the clock of training must not run meanwhile."""

    run_dir: RunDir
    normalizer: Normalizer
    processes: Processes
    num_classes: int
    precise_bn: PreciseBn | None

    def ready_model(self, state: State) -> nn.Module:
        """A copy of the model as it is evaluated: with precise statistics where these are asked for."""
        clone = copy_model(state.model, self.processes)
        if self.precise_bn is None:
            return clone
        with state.clock.measure("precise_bn"):
            return with_precise_bn(
                clone,
                self.precise_bn.batches(),
                self.precise_bn.num_batches,
                self.precise_bn.num_groups,
                self.normalizer,
                self.processes,
            )

    def evaluate_finally(self, state: State, protocol: Protocol) -> Evaluation:
        """Scores the model of ``state``; keeps the weights that were scored, and which classes they confuse."""
        model = self.ready_model(state)
        if self.processes.is_main:
            save_torch(self.run_dir.model, model.state_dict())
        found = self.evaluate(model, state, protocol)
        if self.processes.is_main and found.confusion:
            write_confusion(self.run_dir.confusion_csv, found.confusion)
        return found

    def evaluate(self, model: nn.Module, state: State, protocol: Protocol) -> Evaluation:
        """Scores ``model`` and records a line."""
        with state.clock.measure("evaluate"):
            found = evaluate(
                model,
                protocol.batches(),
                protocol.num_videos,
                self.num_classes,
                self.normalizer,
                self.processes,
            )
        if self.processes.is_main:
            self._record(found, state, protocol)
        return found

    def _record(self, found: Evaluation, state: State, protocol: Protocol) -> None:
        line = {
            "step": state.step,
            "epoch": state.epoch,
            "train_seconds": state.clock.seconds("train"),
            "top1": found.top1,
            "top5": found.top5,
            "loss": found.loss,
            "views": protocol.num_views,
            "num_videos": protocol.num_videos,
            "full_protocol": protocol.is_full,
            "frame_order": protocol.frame_order,
        }
        append_jsonl(self.run_dir.evaluations_jsonl, line)
        LOGGER.info(
            "evaluation after step %d: top-1 %.2f %%, top-5 %.2f %%, loss %.3f "
            "(%d videos, %d views, frames %s)",
            *(state.step, found.top1, found.top5, found.loss),
            *(protocol.num_videos, protocol.num_views, protocol.frame_order),
        )


def copy_model(model: nn.Module, processes: Processes) -> nn.Module:
    """A copy with rank 0's weights and statistics in every process."""
    clone = copy.deepcopy(model)
    dist.copy_from_main(processes, clone)
    return clone
