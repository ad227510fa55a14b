"""From the configuration to how models of a run are scored."""

from __future__ import annotations

import copy
import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mgexp import dist
from mgexp.config.keys import Config
from mgexp.data.loader import build_time_limit, build_train_loader, build_view_loader
from mgexp.data.records import Record
from mgexp.dist import Processes
from mgexp.multigrid.batchnorm import keeping, set_num_groups, share_statistics
from mgexp.multigrid.phases import num_bn_groups
from mgexp.multigrid.sampler import ClipRequest, Stream
from mgexp.multigrid.schedule import Schedule
from mgexp.run.confusion import count_confusions, write_confusion
from mgexp.run.files import append_jsonl, atomic_file
from mgexp.run.folder import RunDir
from mgexp.run.log import LOGGER
from mgexp.run.torch_file import DamagedFileError, check_whole, load_torch, save_torch
from mgexp.stop import Interrupted, StopRequest, leaving_together, watched_together
from mgexp.train.checkpoint import State
from mgexp.train.scores import (
    Evaluation,
    Partial,
    Scores,
    check_decoded,
    score_views,
)
from mgexp.train.setup import Inputs
from mgexp.train.step import Normalizer, check_clips
from mgexp.train.task import Task, metrics_text
from mgexp.video.paths import evenly_spaced

SEED_OFFSET = 1_000_003  # a stream of its own: the same videos, other draws than training


def precise_requests(
    schedule: Schedule, seed: int, max_batches: int, processes: Processes
) -> list[list[ClipRequest]]:
    """This process's share of min(max_batches, ceil(N/B)) batches of B clips at the full shape."""
    recipe = schedule.recipe
    stream = Stream(schedule.num_videos, seed + SEED_OFFSET)
    num_batches = min(max_batches, math.ceil(schedule.num_videos / recipe.clips))
    share = recipe.clips // processes.count
    stride = None if recipe.stride is None else (recipe.stride, recipe.stride)
    firsts = [batch * recipe.clips + processes.rank * share for batch in range(num_batches)]
    return [
        [
            ClipRequest(stream.index_at(p), recipe.frames, recipe.crop, stride, (stream.seed, p))
            for p in range(first, first + share)
        ]
        for first in firsts
    ]


@torch.no_grad()
def with_precise_bn(
    model: nn.Module, batches: Iterable[Any], num_groups: int, normalizer: Normalizer
) -> nn.Module:
    """Gives ``model``, a copy of the trained one, the statistics of ``batches``, in eval mode.

    Normalises in ``num_groups`` groups as training does at the full shape. Every process must call it, with its
    share of the batches; all get the same statistics.
    """
    model.train()
    set_num_groups(model, num_groups)
    population = Population()
    with keeping(model) as layers:
        for batch in batches:
            check_clips(batch)
            for layer in layers:
                layer.kept = []
            model(normalizer(batch.clips, batch.flipped))
            kept = [stats for layer in layers for stats in layer.kept or ()]
            population.add(
                torch.cat([stats.means for stats in kept], dim=1),
                torch.cat([stats.biased_variances() for stats in kept], dim=1),
            )
    sizes = [layer.num_features for layer in layers]
    variances = (population.within + population.between).split_with_sizes(sizes)
    means = population.mean.split_with_sizes(sizes)
    for layer, mean, variance in zip(layers, means, variances, strict=True):
        assert layer.running_mean is not None and layer.running_var is not None
        layer.running_mean.copy_(mean)
        layer.running_var.copy_(variance)
    share_statistics(model, momentum=1.0)
    return model.eval()


@dataclass
class Population:
    """Mean and variance of all groups added, (C,) once there are some.

    ``within`` the groups, the mean of their biased variances; ``between``, the variance of their means. Source of
    the update: Chan, Golub and LeVeque, 1983.
    """

    num_batches: int = 0
    mean: Tensor = field(default_factory=partial(torch.zeros, ()))
    within: Tensor = field(default_factory=partial(torch.zeros, ()))
    between: Tensor = field(default_factory=partial(torch.zeros, ()))

    def add(self, means: Tensor, variances: Tensor) -> None:
        """The (groups, C) means and biased variances of a mini-batch, as many groups as in those before."""
        self.num_batches += 1
        share = 1 / self.num_batches
        apart = means.mean(0) - self.mean
        between = means.var(0, correction=0) + apart.square() * (1 - share)
        self.mean = self.mean + apart * share
        self.within = self.within + (variances.mean(0) - self.within) * share
        self.between = self.between + (between - self.between) * share


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


def build_protocol(
    cfg: Config,
    inputs: Inputs,
    run_dir: RunDir,
    full: bool,
    device: torch.device,
    processes: Processes,
) -> Protocol:
    """All views of all validation videos, or one centre view of some."""
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


def build_precise_bn(
    cfg: Config,
    inputs: Inputs,
    device: torch.device,
    processes: Processes,
    timeouts: Path,
) -> PreciseBn:
    """Training clips at the full shape, in BN groups as training has them there."""
    schedule = inputs.schedule
    requests = precise_requests(schedule, cfg.RNG_SEED, cfg.BN.NUM_BATCHES_PRECISE, processes)

    def load() -> Iterable[Any]:
        limit = build_time_limit(cfg, timeouts)  # with the time-outs up to now
        return build_train_loader(cfg, inputs.train, requests, device, inputs.opener, limit)

    groups = num_bn_groups(schedule.recipe.clips, processes.count, cfg.MULTIGRID.BN_BASE_SIZE)
    return PreciseBn(load, groups)
