"""Evaluate the model of a run: which views, how often saved, and what is recorded.

The full protocol also saves its scores. If a kill interrupts it, it continues: every ``save_seconds`` each
process saves the part that it has done, and the same command evaluates the same weights (model.pt) from there. A
part counts only for the same step, videos, protocol and number of processes, and not after a change that
--override allowed. After a signal all processes finish the batch under way, save their part, and leave with
Interrupted.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from mgexp import dist
from mgexp.config.keys import Config
from mgexp.data.loader import build_time_limit, build_view_loader
from mgexp.data.records import Record
from mgexp.dist import Processes
from mgexp.run.confusion import count_confusions, write_confusion
from mgexp.run.files import append_jsonl, atomic_file
from mgexp.run.folder import RunDir
from mgexp.run.log import LOGGER
from mgexp.run.torch_file import DamagedFileError, check_whole, load_torch, save_torch
from mgexp.stop import Interrupted, StopRequest, leaving_together, watched_together
from mgexp.train.checkpoint import State
from mgexp.train.precise_bn import PreciseBn, build_precise_bn, with_precise_bn
from mgexp.train.scores import Evaluation, PartialScores, Scores, check_decoded, score_views
from mgexp.train.setup import Inputs
from mgexp.train.step import Normalizer
from mgexp.train.task import Task, metrics_text
from mgexp.video.paths import evenly_spaced


@dataclass(frozen=True)
class Protocol:
    """Which views are scored: ``num_clips`` in time, ``num_crops`` of each, of the videos of ``records``.

    ``batches(first)`` loads the views of this process, ``batch_size`` views at a time, without the first ``first``
    batches.
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
        """Part of file names that tells two protocols apart, such as 10x3_forward."""
        return f"{self.num_clips}x{self.num_crops}_{self.frame_order}"

    def fingerprint(self) -> str:
        """A hash of the videos, their labels and the size of batches."""
        lines = [f"{self.batch_size} views at a time", *(record.line() for record in self.records)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def build_protocol(
    cfg: Config,
    inputs: Inputs,
    run_dir: RunDir,
    full: bool,
    device: torch.device,
    processes: Processes,
) -> Protocol:
    """Choose all views of all validation videos, or one centre view of some of them."""
    records = evenly_spaced(inputs.val, 0 if full else cfg.TRAIN.EVALUATION_VIDEOS)
    limit = build_time_limit(cfg, run_dir.timeouts_jsonl)
    return Protocol(
        partial(
            build_view_loader, cfg, records, full, device, processes, inputs.opener, limit=limit
        ),
        records=records,
        num_clips=cfg.TEST.NUM_ENSEMBLE_VIEWS if full else 1,
        num_crops=cfg.TEST.NUM_SPATIAL_CROPS if full else 1,
        batch_size=cfg.TEST.BATCH_SIZE,
        is_full=full,
        frame_order=cfg.TEST.FRAME_ORDER,
    )


@dataclass(frozen=True)
class Evaluator:
    """Score the model of a run without changing it; the clock of training must not run meanwhile.

    ``precise_bn`` is None where the model keeps the statistics of training. ``tell`` is called with each line of
    evaluations.jsonl.
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
        """Copy the model as it is evaluated: with precise statistics where these are asked for."""
        clone = copy.deepcopy(state.model)
        if self.precise_bn is None:
            return clone
        with state.clock.measure("precise_bn"):
            # BN groups may span processes, which then wait for each other in each batch.
            device = self.normalizer.device
            batches = watched_together(self.stop, self.precise_bn.batches(), self.processes, device)
            return with_precise_bn(clone, batches, self.precise_bn.num_groups, self.normalizer)

    def evaluate(self, model: nn.Module, state: State, protocol: Protocol) -> Evaluation:
        """Score ``model`` and record a line; of the full protocol record the scores too."""
        scores = Scores(len(protocol.records), self.task, self.normalizer.device)
        part = self._part(state, protocol)
        seconds = part.go_on(scores)
        for name in ("evaluate", "program"):  # of an earlier start, for what is not done again
            state.clock.add(name, seconds)
        with state.clock.measure("evaluate"):
            batches = self.stop.watch(protocol.batches(part.num_batches))
            after_batch = partial(part.count_batch, scores)
            with leaving_together(self.processes, self.normalizer.device):
                try:
                    errors = score_views(model, batches, scores, self.normalizer, after_batch)
                except Interrupted:
                    part.save(scores)
                    raise
            check_decoded(dist.merge(self.processes, errors))
            part.save(scores)
            found = scores.reduce(self.processes)
        if self.processes.is_main:
            self._record(found, state, protocol)
        return found

    def evaluate_finally(self, state: State, protocol: Protocol) -> Evaluation:
        """Score under the full protocol at the end; before that, save the weights that are evaluated.

        Where the main process has a part of an earlier start, evaluate those saved weights on.
        """
        part = self._part(state, protocol)
        has_part = self.processes.is_main and part.read() is not None and self._has_model()
        (goes_on,) = dist.any_true(self.processes, (has_part,), self.normalizer.device)
        if goes_on:
            LOGGER.info("going on with the final evaluation")
            model = copy.deepcopy(state.model)
            model.load_state_dict(load_torch(self.run_dir.model))
        else:
            part.drop()
            model = self.ready_model(state)
            if self.processes.is_main:
                save_torch(self.run_dir.model, model.state_dict())
        found = self.evaluate(model, state, protocol)
        # A video of many labels is not taken for another class.
        if self.processes.is_main and found.labels.dim() == 1:
            confused = count_confusions(found.labels.tolist(), found.scores.argmax(1).tolist())
            write_confusion(self.run_dir.confusion_csv, confused)
        return found

    def _has_model(self) -> bool:
        """Whether the weights that a part scored are there, whole."""
        try:
            check_whole(self.run_dir.model)
        except (FileNotFoundError, DamagedFileError) as error:
            LOGGER.warning("the final evaluation begins anew: %s", error)
            return False
        return True

    def _part(self, state: State, protocol: Protocol) -> PartialScores:
        """This process's part of the evaluation on disk. A short evaluation has none."""
        rank, count = self.processes.rank, self.processes.count
        if not protocol.is_full:
            return PartialScores(None)
        path = self.run_dir.evaluation_part(state.step, f"{protocol.name}_{rank}of{count}")
        return PartialScores(path, protocol.fingerprint(), self.save_seconds)

    def _record(self, found: Evaluation, state: State, protocol: Protocol) -> None:
        if protocol.is_full:
            with atomic_file(self.run_dir.scores(protocol.name)) as file:
                np.savez(
                    file,
                    videos=np.array([record.path for record in protocol.records]),
                    labels=found.labels.numpy(),
                    scores=found.scores.numpy(),  # (videos, classes) over all views
                    num_views=np.array(protocol.num_views),
                )
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


def build_evaluator(
    cfg: Config,
    inputs: Inputs,
    run_dir: RunDir,
    task: Task,
    normalizer: Normalizer,
    processes: Processes,
    stop: StopRequest,
    tell: Callable[[Mapping[str, Any]], None] = lambda line: None,
) -> Evaluator:
    """Build what scores models of the run in ``run_dir``, until a signal comes to ``stop``."""
    precise = None
    if cfg.BN.USE_PRECISE_STATS:
        record = run_dir.timeouts_jsonl
        precise = build_precise_bn(cfg, inputs, normalizer.device, processes, record)
    save_seconds = 60 * cfg.TRAIN.CHECKPOINT_MINUTES
    return Evaluator(run_dir, normalizer, processes, task, precise, save_seconds, stop, tell)
