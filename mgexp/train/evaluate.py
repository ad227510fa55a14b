"""Evaluate the model of a run: choose the views, score them, and record the result.

After a signal each process finishes its batch and raises Interrupted. The next start scores all views again.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
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
from mgexp.run.files import append_jsonl, atomic_file
from mgexp.run.folder import RunDir
from mgexp.run.log import LOGGER
from mgexp.run.torch_file import save_torch
from mgexp.stop import StopRequest, leaving_together, watched_together
from mgexp.text import counted
from mgexp.train.checkpoint import CALMER, State
from mgexp.train.precise_bn import PreciseBn, with_precise_bn
from mgexp.train.setup import Inputs
from mgexp.train.step import Normalizer
from mgexp.train.task import Task, metrics_text
from mgexp.video.paths import evenly_spaced


@dataclass(frozen=True)
class Protocol:
    """The views to score: ``num_clips`` × ``num_crops`` of each video of ``records``.

    ``batches()`` loads the views of this process.
    """

    batches: Callable[[], Iterable[Any]]
    records: tuple[Record, ...]
    num_clips: int
    num_crops: int
    is_full: bool
    frame_order: str = "forward"

    @property
    def num_views(self) -> int:
        return self.num_clips * self.num_crops

    def __str__(self) -> str:
        return f"{counted(len(self.records), 'video')}, {counted(self.num_views, 'view')}"

    @property
    def name(self) -> str:
        """Name the protocol in file names, such as 10x3_forward."""
        return f"{self.num_clips}x{self.num_crops}_{self.frame_order}"


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
        is_full=full,
        frame_order=cfg.TEST.FRAME_ORDER,
    )


@dataclass(frozen=True)
class Evaluation:
    """Result of an evaluation: ``metrics`` in percent, and the mean ``loss`` per view if the task has one.

    ``scores`` (videos, classes) and ``labels`` (videos, ...) are on the CPU. The scores of a video
    combine all its views.
    """

    metrics: Mapping[str, float]
    loss: float | None
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
        # Views of one video have one label, so it does not matter which of them writes last.
        self.labels[videos] = labels
        if not self.task.takes_labels:
            views = logits.new_tensor(len(labels))
            self.loss += torch.stack([self.task.loss(logits, labels) * views, views])

    def reduce(self, processes: Processes) -> Evaluation:
        self.task.reduce_scores(processes, self.sums)
        dist.sum_(processes, self.loss)
        # A process that saw no view of a video has label 0 for it. No label is below 0, so the
        # maximum over processes is the true label.
        dist.max_(processes, self.labels)
        return Evaluation(
            metrics=self.task.metrics(self.sums, self.labels),
            loss=None if self.task.takes_labels else (self.loss[0] / self.loss[1]).item(),
            scores=self.sums.cpu(),
            labels=self.labels.cpu(),
        )


@torch.inference_mode()
def score_views(
    model: nn.Module,
    batches: Iterable[Any],
    scores: Scores,
    normalizer: Normalizer,
) -> dict[int, str]:
    """Add the views of ``batches`` to ``scores``. Return why videos cannot be decoded, by their index."""
    model.eval()
    device = normalizer.device
    errors: dict[int, str] = {}
    for batch in batches:
        errors.update(batch.errors)
        # Nothing is scored after a broken video, but the other batches are read, so that one message lists all.
        if errors:
            continue
        # There is no autocast here: the weights are fp32 in every precision, and so are clips. In a run in tf32,
        # products of matrices stay in tf32.
        logits = model(normalizer(batch.clips))
        scores.add(logits, batch.videos.to(device), batch.labels.to(device))
    return errors


def check_decoded(errors: Mapping[int, str]) -> None:
    """Raise InputError with the errors of all processes, by the index of the video."""
    if errors:
        names = [errors[video] for video in sorted(errors)]
        raise InputError([f"{len(names)} validation videos cannot be decoded: {listed(names)}"])


@dataclass(frozen=True)
class Evaluator:
    """Scorer of a run's model. It does not change the model.

    The caller must not measure training time during an evaluation. With ``precise_bn`` None the
    model keeps the batch-norm statistics of training. ``tell`` receives each line of
    evaluations.jsonl. ``flops`` counts the training FLOPs before a step, where they are known.
    """

    run_dir: RunDir
    normalizer: Normalizer
    processes: Processes
    task: Task
    precise_bn: PreciseBn | None
    stop: StopRequest = field(default_factory=StopRequest)
    tell: Callable[[Mapping[str, Any]], None] = lambda line: None
    flops: Callable[[int], int] | None = None

    def ready_model(self, state: State) -> nn.Module:
        """Copy the model for an evaluation, with averaged weights and precise statistics if the run has them."""
        clone = copy.deepcopy(state.model)
        if state.average:
            state.average.load_into(clone)
        source = self.precise_bn
        if source is None:
            return clone

        # A BN group may span processes, which wait for each other in each batch. So after a signal all must stop
        # at the same batch. If one stopped alone, the others would wait for ever.
        def batches() -> Iterable[Any]:
            device = self.normalizer.device
            return watched_together(self.stop, source.batches(), self.processes, device)

        with state.clock.measure("precise_bn"):
            return with_precise_bn(clone, replace(source, batches=batches), self.normalizer)

    def evaluate(self, model: nn.Module, state: State, protocol: Protocol) -> Evaluation:
        """Score ``model`` and write a line to evaluations.jsonl; under the full protocol save the scores too."""
        scores = Scores(len(protocol.records), self.task, self.normalizer.device)
        with state.clock.measure("evaluate"):
            # Processes may have different numbers of batches, so each watches for its own signal.
            device = self.normalizer.device
            batches = watched_together(self.stop, protocol.batches(), Processes(), device)
            with leaving_together(self.processes, device):
                errors = score_views(model, batches, scores, self.normalizer)
            # A collective: processes without an error take part, and then raise the same one.
            check_decoded(dist.merge(self.processes, errors))
            evaluation = scores.reduce(self.processes)
        # All processes have the same loss, so all of them stop here.
        if evaluation.loss is not None and not math.isfinite(evaluation.loss):
            raise TrainingError(
                f"the evaluation after step {state.step} has the loss {evaluation.loss}, and is not recorded: "
                f"weights or statistics are too large; {CALMER}"
            )
        if self.processes.is_main:
            self._record(evaluation, state, protocol)
        return evaluation

    def evaluate_finally(self, state: State, protocol: Protocol) -> Evaluation:
        """Save the weights of the finished run, then score them under the full protocol."""
        model = self.ready_model(state)
        if self.processes.is_main:
            LOGGER.info("final evaluation: %s", protocol)
            # Before the scores, which may take hours: whoever waits for them can use the weights.
            save_torch(self.run_dir.model, model.state_dict())
        return self.evaluate(model, state, protocol)

    def _record(self, evaluation: Evaluation, state: State, protocol: Protocol) -> None:
        if protocol.is_full:
            with atomic_file(self.run_dir.scores(protocol.name)) as file:
                np.savez(
                    file,
                    videos=np.array([record.path for record in protocol.records]),
                    labels=evaluation.labels.numpy(),
                    scores=evaluation.scores.numpy(),  # (videos, classes) over all views
                    num_views=np.array(protocol.num_views),
                )
        line = {
            "step": state.step,
            "epoch": state.epoch,
            "train_seconds": state.clock.seconds("train"),
            "train_flops": self.flops(state.step) if self.flops else None,
            **evaluation.metrics,
            "loss": evaluation.loss,
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
            "evaluation after step %d: %s%s (%s%s)",
            state.step,
            metrics_text(evaluation.metrics, evaluation.scores.shape[1]),
            "" if evaluation.loss is None else f", loss {evaluation.loss:.3f}",
            protocol,
            order,
        )
