"""Metrics of a model over all views of all videos."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mgexp import dist
from mgexp.dist import Processes
from mgexp.errors import InputError, listed
from mgexp.train.step import Normalizer
from mgexp.train.task import Task


@dataclass(frozen=True)
class Evaluation:
    """``metrics`` in percent, the mean ``loss`` per view, and what they come from: a row for each video.

    ``scores`` (videos, classes) over all views of a video, and its ``labels``, both on the CPU.
    """

    metrics: Mapping[str, float]
    loss: float
    scores: Tensor
    labels: Tensor


class Scores:
    """Scores over the views of each video, as the task puts views together."""

    def __init__(self, num_videos: int, task: Task, device: torch.device) -> None:
        self.task = task
        self.sums = task.no_scores(num_videos, device)
        self.labels = task.no_labels(num_videos, device)
        self.loss = torch.zeros(2, dtype=torch.float64, device=device)

    def add(self, logits: Tensor, videos: Tensor, labels: Tensor) -> None:
        """Views (N, classes) of ``videos`` (N,), with their labels (N, ...)."""
        self.task.ensemble.add(self.sums, videos, self.task.scores(logits.float()))
        self.labels[videos] = labels
        views = logits.new_tensor(len(labels))
        self.loss += torch.stack([self.task.loss(logits, labels) * views, views])

    def state_dict(self) -> dict[str, Tensor]:
        """What was added so far, by this process."""
        return {"sums": self.sums, "labels": self.labels, "loss": self.loss}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from what was added before."""
        for name, values in self.state_dict().items():
            values.copy_(state[name])

    def reduce(self, processes: Processes) -> Evaluation:
        """The evaluation over the views of all processes."""
        self.task.ensemble.reduce(processes, self.sums)
        dist.sum_(processes, self.loss)
        dist.max_(processes, self.labels)  # views of one video may be in several processes
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
    """Adds the views of ``batches`` to ``scores``; ``after_batch`` is called after each, until a video fails.

    Gives the videos that cannot be decoded, and why.
    """
    model.eval()
    device = normalizer.device
    errors: dict[int, str] = {}
    for batch in batches:
        errors.update(batch.errors)
        if errors:
            continue
        logits = model(normalizer(batch.clips))
        scores.add(logits, batch.videos.to(device), batch.labels.to(device))
        after_batch()
    return errors


def check_decoded(errors: Mapping[int, str]) -> None:
    """Raises InputError that lists every video of ``errors``, of all processes, by its index."""
    if errors:
        names = [errors[video] for video in sorted(errors)]
        raise InputError([f"{len(names)} validation videos cannot be decoded: {listed(names)}"])
