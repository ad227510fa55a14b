"""Accuracy of a model over all views of all videos."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from mgexp import dist
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.record.confusion import Counts, count_confusions
from mgexp.train.inputs import listed
from mgexp.train.step import Normalizer


@dataclass(frozen=True)
class Evaluation:
    """Percent of videos whose label is the first, or among the first five; mean cross-entropy per view.

    ``confusion``: (label, first class, videos) of each pair that occurs.
    """

    top1: float
    top5: float
    loss: float
    num_videos: int
    confusion: Counts = ()


class Scores:
    """Softmax scores summed over the views of each video, as the released code ensembles them."""

    def __init__(self, num_videos: int, num_classes: int, device: torch.device) -> None:
        self.sums = torch.zeros(num_videos, num_classes, device=device)
        self.labels = torch.zeros(num_videos, dtype=torch.long, device=device)
        self.loss = torch.zeros(2, dtype=torch.float64, device=device)

    def add(self, logits: torch.Tensor, videos: torch.Tensor, labels: torch.Tensor) -> None:
        """Views (N, classes) of ``videos`` (N,)."""
        self.sums.index_add_(0, videos, logits.float().softmax(1))
        self.labels[videos] = labels
        self.loss += torch.stack(
            [F.cross_entropy(logits, labels, reduction="sum"), logits.new_tensor(len(labels))]
        )

    def reduce(self, processes: Processes) -> Evaluation:
        """The evaluation over the views of all processes."""
        for values in (self.sums, self.loss):
            dist.sum_(processes, values)
        dist.max_(processes, self.labels)  # views of one video may be in several processes
        best = self.sums.topk(min(5, self.sums.shape[1])).indices
        ranked = best == self.labels[:, None]
        return Evaluation(
            top1=100 * ranked[:, 0].double().mean().item(),
            top5=100 * ranked.any(1).double().mean().item(),
            loss=(self.loss[0] / self.loss[1]).item(),
            num_videos=len(self.labels),
            confusion=count_confusions(self.labels.tolist(), best[:, 0].tolist()),
        )


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    batches: Iterable[Any],
    num_videos: int,
    num_classes: int,
    normalizer: Normalizer,
    processes: Processes,
) -> Evaluation:
    """Evaluates ``model``; raises InputError that lists every video that cannot be decoded."""
    model.eval()
    scores = Scores(num_videos, num_classes, normalizer.device)
    errors: list[str] = []
    for batch in batches:
        errors += [reason for _, reason in batch.errors]
        if len(batch.videos) and not errors:
            logits = model(normalizer(batch.clips))
            device = normalizer.device
            scores.add(logits, batch.videos.to(device), batch.labels.to(device))
    if errors:
        names = list(dict.fromkeys(errors))
        raise InputError([f"{len(names)} validation videos cannot be decoded: {listed(names)}"])
    return scores.reduce(processes)
