"""Evaluate the model of a run: choose the views, score them, and record the result.

The full protocol survives a kill. Every ``save_seconds`` each process saves the scores that it has
so far. This file is its part. The same command then continues from the parts, with the same weights
(model.pt). A part is valid only for the same step, videos, protocol and number of processes. A
change that --override allows removes all parts. After a signal each process finishes its batch,
saves its part, and raises Interrupted.
"""

from __future__ import annotations

import copy
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mgexp import dist
from mgexp.config.keys import Config
from mgexp.data.loader import build_view_loader
from mgexp.data.records import Record
from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError, listed
from mgexp.run.confusion import count_confusions, write_confusion
from mgexp.run.files import append_jsonl, atomic_file
from mgexp.run.folder import RunDir
from mgexp.run.log import LOGGER
from mgexp.run.torch_file import DamagedFileError, check_whole, load_torch, save_torch
from mgexp.stop import Interrupted, StopRequest, leaving_together, watched_together
from mgexp.text import counted
from mgexp.train.checkpoint import CALMER, State
from mgexp.train.precise_bn import PreciseBn, build_precise_bn, with_precise_bn
from mgexp.train.setup import Inputs
from mgexp.train.step import Normalizer
from mgexp.train.task import Task, metrics_text
from mgexp.video.paths import evenly_spaced


@dataclass(frozen=True)
class Protocol:
    """The views to score: ``num_clips`` × ``num_crops`` of each video of ``records``.

    ``batches(first)`` loads the views of this process, ``batch_size`` views at a time, and skips
    the first ``first`` batches.
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
        """Count the views of one video."""
        return self.num_clips * self.num_crops

    @property
    def name(self) -> str:
        """Name the protocol in file names, such as 10x3_forward."""
        return f"{self.num_clips}x{self.num_crops}_{self.frame_order}"

    def fingerprint(self) -> str:
        """Hash the videos, their labels and the batch size. A saved part with another hash is not used."""
        # A part counts finished batches, and so the batch size decides which views they hold.
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
    """Choose the views: all views of all videos if ``full``, else one centre view.

    With ``full`` False only TRAIN.EVALUATION_VIDEOS of the validation videos are used.
    """
    records = evenly_spaced(inputs.val, 0 if full else cfg.TRAIN.EVALUATION_VIDEOS)
    arguments = (cfg, records, full, device, processes, inputs.opener)
    return Protocol(
        partial(build_view_loader, *arguments, failures=run_dir.failures_jsonl),
        records=records,
        num_clips=cfg.TEST.NUM_ENSEMBLE_VIEWS if full else 1,
        num_crops=cfg.TEST.NUM_SPATIAL_CROPS if full else 1,
        batch_size=cfg.TEST.BATCH_SIZE,
        is_full=full,
        frame_order=cfg.TEST.FRAME_ORDER,
    )


@dataclass(frozen=True)
class Evaluation:
    """Result of an evaluation: ``metrics`` in percent, and the mean ``loss`` per view.

    ``scores`` (videos, classes) and ``labels`` (videos, ...) are on the CPU. The scores of a video
    combine all its views.
    """

    metrics: Mapping[str, float]
    loss: float
    scores: Tensor
    labels: Tensor


class Scores:
    """Scores of each video, combined from the scores of its views by the rule of the task."""

    def __init__(self, num_videos: int, task: Task, device: torch.device) -> None:
        self.task = task
        self.sums = task.no_scores(num_videos, device)
        self.labels = task.no_labels(num_videos, device)
        # These are the sum of the losses of all views, and the number of views. Both add up over
        # batches and processes. A float32 sum over a million views would lose digits.
        self.loss = torch.zeros(2, dtype=torch.float64, device=device)

    def add(self, logits: Tensor, videos: Tensor, labels: Tensor) -> None:
        """Add the logits (N, classes) and labels (N, ...) of N views of ``videos`` (N,)."""
        self.task.add_scores(self.sums, videos, self.task.scores(logits.float()))
        self.labels[videos] = labels
        views = logits.new_tensor(len(labels))
        self.loss += torch.stack([self.task.loss(logits, labels) * views, views])

    def state_dict(self) -> dict[str, Tensor]:
        """Return the sums of what this process has added so far."""
        return {"sums": self.sums, "labels": self.labels, "loss": self.loss}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from the sums of an earlier ``state_dict``."""
        for name, values in self.state_dict().items():
            values.copy_(state[name])

    def reduce(self, processes: Processes) -> Evaluation:
        """Compute the evaluation over the views of all processes."""
        self.task.reduce_scores(processes, self.sums)
        dist.sum_(processes, self.loss)
        # A process that saw no view of a video has label 0 for it. No label is below 0, so the
        # maximum over processes is the true label.
        dist.max_(processes, self.labels)
        return Evaluation(
            metrics=self.task.metrics(self.sums, self.labels),
            loss=(self.loss[0] / self.loss[1]).item(),
            scores=self.sums.cpu(),
            labels=self.labels.cpu(),
        )


@torch.inference_mode()
def score_views(
    model: nn.Module,
    batches: Iterable[Any],
    scores: Scores,
    normalizer: Normalizer,
    after_batch: Callable[[], None] = lambda: None,
) -> dict[int, str]:
    """Add the views of ``batches`` to ``scores``, and call ``after_batch`` after each batch.

    Return the reason for each video that cannot be decoded, by its index. After the first such
    video no more views are scored. The remaining batches are still read, so that one message can
    list all broken videos.
    """
    model.eval()
    device = normalizer.device
    errors: dict[int, str] = {}
    for batch in batches:
        errors.update(batch.errors)
        if errors:
            continue
        # There is no autocast here: the weights are fp32 in every precision, and so are clips. In a run in tf32,
        # products of matrices stay in tf32.
        logits = model(normalizer(batch.clips))
        scores.add(logits, batch.videos.to(device), batch.labels.to(device))
        after_batch()
    return errors


def check_decoded(errors: Mapping[int, str]) -> None:
    """Raise InputError with the errors of all processes, by the index of the video."""
    if errors:
        names = [errors[video] for video in sorted(errors)]
        raise InputError([f"{len(names)} validation videos cannot be decoded: {listed(names)}"])


@dataclass
class PartialScores:
    """File with the scores of this process so far, from which a killed evaluation continues.

    The scores are saved after a batch if ``save_seconds`` have passed, and at the end. Short
    evaluations have ``path`` None and save nothing. A file is valid only for the same ``identity``,
    such as a hash of the videos. ``num_batches`` and ``seconds`` include earlier starts.
    """

    path: Path | None
    identity: str = ""
    save_seconds: float = 0.0
    num_batches: int = 0
    seconds: float = 0.0
    _since: float = field(default_factory=time.perf_counter)
    _last_save: float = field(default_factory=time.perf_counter)

    def read(self) -> dict[str, Any] | None:
        """Read the file; return None if it is missing, damaged, or of another evaluation."""
        if self.path is None or not self.path.exists():
            return None
        try:
            saved = load_torch(self.path)
        except DamagedFileError as error:
            LOGGER.warning("%s; this part of the evaluation is done again", error)
            return None
        return saved if saved["identity"] == self.identity else None

    def load_into(self, scores: Scores) -> float:
        """Load the file into ``scores`` if there is one; return the seconds of earlier starts."""
        saved = self.read()
        if saved is not None:
            scores.load_state_dict(saved["scores"])
            self.num_batches, self.seconds = saved["num_batches"], saved["seconds"]
        self._since = self._last_save = time.perf_counter()
        return self.seconds

    def count_batch(self, scores: Scores) -> None:
        """Count one more batch in ``scores``, and save them if ``save_seconds`` have passed."""
        self.num_batches += 1
        if time.perf_counter() - self._last_save >= self.save_seconds:
            self.save(scores)

    def save(self, scores: Scores) -> None:
        """Write the file atomically. It replaces an earlier one."""
        if self.path is None:
            return
        now = time.perf_counter()
        self.path.parent.mkdir(exist_ok=True)
        state = {
            "identity": self.identity,
            "num_batches": self.num_batches,
            "seconds": self.seconds + now - self._since,
            "scores": scores.state_dict(),
        }
        save_torch(self.path, state)
        self._last_save = now

    def drop(self) -> None:
        """Remove the file if there is one."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Evaluator:
    """Scorer of a run's model. It does not change the model.

    The caller must not measure training time during an evaluation. With ``precise_bn`` None the
    model keeps the batch-norm statistics of training. ``tell`` receives each line of
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
        """Copy the model for an evaluation, with averaged weights and precise statistics if the run has them."""
        clone = copy.deepcopy(state.model)
        if state.average:
            state.average.load_into(clone)
        if self.precise_bn is None:
            return clone
        with state.clock.measure("precise_bn"):
            # A BN group may span processes, which wait for each other in each batch. So after a
            # signal all must stop at the same batch. If one stopped alone, the others would wait
            # for ever.
            device = self.normalizer.device
            batches = watched_together(self.stop, self.precise_bn.batches(), self.processes, device)
            source = self.precise_bn
            return with_precise_bn(
                clone, batches, source.num_groups, self.normalizer, source.max_clips, source.draws
            )

    def evaluate(self, model: nn.Module, state: State, protocol: Protocol) -> Evaluation:
        """Score ``model`` and write a line to evaluations.jsonl; under the full protocol save the scores too."""
        scores = Scores(len(protocol.records), self.task, self.normalizer.device)
        part = self._part(state, protocol)
        seconds = part.load_into(scores)
        # An earlier start spent these seconds, before it was killed, on views that this start does
        # not score again.
        for name in ("evaluate", "program"):
            state.clock.add(name, seconds)
        with state.clock.measure("evaluate"):
            batches = self.stop.watch(protocol.batches(part.num_batches))

            def after_batch() -> None:
                part.count_batch(scores)
                if self.stop.should_save:
                    self.stop.should_save = False
                    part.save(scores)

            with leaving_together(self.processes, self.normalizer.device):
                try:
                    errors = score_views(model, batches, scores, self.normalizer, after_batch)
                except Interrupted:
                    part.save(scores)
                    raise
                # Another process may leave at a signal, and this one with it. ``reduce``, which sums over the
                # processes in place, comes later.
                part.save(scores)
            check_decoded(dist.merge(self.processes, errors))
            found = scores.reduce(self.processes)
        # All processes have the same loss, so all of them stop here.
        if not math.isfinite(found.loss):
            raise TrainingError(
                f"the evaluation after step {state.step} has the loss {found.loss}, and is not recorded. The "
                f"weights or the statistics of batch norm are too large; {CALMER}"
            )
        if self.processes.is_main:
            self._record(found, state, protocol)
        return found

    def evaluate_finally(self, state: State, protocol: Protocol) -> Evaluation:
        """Save the weights of the finished run, then score them under the full protocol.

        If rank 0 has a part of an earlier start, continue that evaluation with its saved weights.
        """
        part = self._part(state, protocol)
        has_part = self.processes.is_main and part.read() is not None
        if has_part:
            try:
                check_whole(self.run_dir.model)
            except (FileNotFoundError, DamagedFileError) as error:
                LOGGER.warning("the final evaluation starts from the beginning: %s", error)
                has_part = False
        # All processes must score the same weights, so rank 0 decides for all. We load the saved
        # weights, because precise batch-norm statistics that are computed again may differ in the
        # last bits, for instance on another machine.
        (goes_on,) = dist.any_true(self.processes, (has_part,), self.normalizer.device)
        if goes_on:
            LOGGER.info("continuing the final evaluation")
            model = copy.deepcopy(state.model)
            model.load_state_dict(load_torch(self.run_dir.model))
        else:
            part.drop()
            model = self.ready_model(state)
            if self.processes.is_main:
                save_torch(self.run_dir.model, model.state_dict())
        found = self.evaluate(model, state, protocol)
        # A table of confusions needs exactly one label for each video.
        if self.processes.is_main and found.labels.dim() == 1:
            confused = count_confusions(found.labels.tolist(), found.scores.argmax(1).tolist())
            write_confusion(self.run_dir.confusion_csv, confused)
        return found

    def _part(self, state: State, protocol: Protocol) -> PartialScores:
        """Return the part of this process. The short evaluations during training have no file."""
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
        # "forward" is how every video runs. Only the controls need words.
        order = "" if protocol.frame_order == "forward" else f", frames {protocol.frame_order}"
        LOGGER.info(
            "evaluation after step %d: %s, loss %.3f (%s, %s%s)",
            *(state.step, metrics_text(found.metrics, found.scores.shape[1]), found.loss),
            *(counted(len(protocol.records), "video"), counted(protocol.num_views, "view"), order),
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
    """Build the evaluator of the run in ``run_dir``. A signal to ``stop`` interrupts it."""
    precise = None
    if cfg.BN.USE_PRECISE_STATS:
        record = run_dir.failures_jsonl
        precise = build_precise_bn(cfg, inputs, normalizer.device, processes, record)
    save_seconds = 60 * cfg.TRAIN.CHECKPOINT_MINUTES
    return Evaluator(run_dir, normalizer, processes, task, precise, save_seconds, stop, tell)
