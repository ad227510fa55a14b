"""The task of a run, by its kind of labels: loss, scores of clips and videos, and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from mgexp import dist
from mgexp.config.keys import Config
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.registry import LOSSES
from mgexp.run.folder import METRIC_NAMES, MORE_METRICS

Loss = Callable[[Tensor, Tensor], Tensor]
"""Function of logits (B, classes) and labels that returns the mean loss."""


Ensemble = Literal["sum", "max"]
"""Rule that makes a video's scores from those of its views: their sum, or the largest for each
class."""


@dataclass(frozen=True)
class Task:
    """Kind of labels, with the loss, scores and metrics that go with it.

    ``scores`` turns logits (N, classes) into scores of the same shape. ``metrics`` turns scores
    (videos, classes) and labels into percent by name: top1 and top5, or map. Runs are compared by the first.
    ``label_shape`` and ``label_type`` describe the label of one video. If the network ``takes_labels`` in
    training, it returns its own loss, and evaluations have none.
    """

    num_classes: int
    loss: Loss
    scores: Callable[[Tensor], Tensor]
    metrics: Callable[[Tensor, Tensor], dict[str, float]]
    ensemble: Ensemble
    label_shape: tuple[int, ...]
    label_type: torch.dtype
    takes_labels: bool = False

    def no_scores(self, num_videos: int, device: torch.device) -> Tensor:
        """Make the scores (num_videos, classes) before the first view, float32."""
        start = 0.0 if self.ensemble == "sum" else -torch.inf
        return torch.full((num_videos, self.num_classes), start, device=device)

    def add_scores(self, sums: Tensor, videos: Tensor, scores: Tensor) -> None:
        """Add the scores (N, classes) of N views of ``videos`` (N,) to ``sums`` (videos, classes), in place."""
        # A batch may hold several views of one video. With ``sums[videos] += scores`` only one of
        # them would count.
        if self.ensemble == "sum":
            sums.index_add_(0, videos, scores)
        else:
            sums.scatter_reduce_(0, videos[:, None].expand_as(scores), scores, "amax")

    def reduce_scores(self, processes: Processes, sums: Tensor) -> None:
        """Combine the ``sums`` of all processes, in place."""
        if self.ensemble == "sum":
            dist.sum_(processes, sums)
        else:
            dist.max_(processes, sums)

    def probabilities(self, sums: Tensor, num_views: Tensor) -> Tensor:
        """Compute the probabilities (classes,) of one video from its ``sums``."""
        return sums / num_views if self.ensemble == "sum" else sums

    def no_labels(self, num_videos: int, device: torch.device) -> Tensor:
        """Make the labels (num_videos, ...) before the first view. They are 0, the lowest label."""
        # So a maximum over processes gives the label from the process that has seen the video.
        return torch.zeros(num_videos, *self.label_shape, dtype=self.label_type, device=device)

    def draw_labels(self, num_videos: int, generator: torch.Generator) -> Tensor:
        """Draw random labels (num_videos, ...): a class, or 0 or 1 for each class."""
        num_values = 2 if self.label_shape else self.num_classes
        size = (num_videos, *self.label_shape)
        return torch.randint(num_values, size, generator=generator).to(self.label_type)


def one_label(num_classes: int, ensemble: Ensemble) -> Task:
    """Make the task of one class per video: cross-entropy, softmax, top-1 and top-5. Labels are int64."""
    return Task(
        num_classes=num_classes,
        loss=F.cross_entropy,
        scores=lambda logits: logits.softmax(1),
        metrics=top1_and_top5,
        ensemble=ensemble,
        label_shape=(),
        label_type=torch.long,
    )


def many_labels(num_classes: int, ensemble: Ensemble) -> Task:
    """Make the task of any number of classes per video: binary cross-entropy, sigmoid, mAP. Labels are float32.

    Source: PySlowFast, MODEL.LOSS_FUNC bce_logit and HEAD_ACT sigmoid of its Charades configurations; the
    loss is the mean over clips and classes.
    """
    return Task(
        num_classes=num_classes,
        loss=F.binary_cross_entropy_with_logits,
        scores=torch.sigmoid,
        metrics=mean_average_precision,
        ensemble=ensemble,
        label_shape=(num_classes,),
        label_type=torch.float32,
    )


LOSSES.add("cross_entropy", one_label)
LOSSES.add("bce_logit", many_labels)


def build_task(cfg: Config) -> Task:
    """Build the task that is registered as MODEL.LOSS_FUNC. Raises InputError if there is none."""
    task: Task = LOSSES.find(cfg.MODEL.LOSS_FUNC)(cfg.MODEL.NUM_CLASSES, cfg.DATA.ENSEMBLE_METHOD)
    return task


def metric_problems(task: Task, loss: str, expected: Sequence[str]) -> list[str]:
    """List the metrics of a task that mgexp does not know, and ``expected`` ones that it does not have."""
    # So many that some video has a label, without which there is no mAP.
    labels = task.draw_labels(8, torch.Generator().manual_seed(0))
    names = [*task.metrics(task.no_scores(8, labels.device), labels)]
    judged = f"MODEL.LOSS_FUNC = {loss} is judged by {' and '.join(names) or 'nothing'}"
    known = METRIC_NAMES | MORE_METRICS
    if not names or not {*names} <= known.keys():
        return [f"{judged}: its task may have the metrics {', '.join(known)}"]
    return [f"EXPECTED: {judged}, not by {name}" for name in expected if name not in names]


def top1_and_top5(scores: Tensor, labels: Tensor) -> dict[str, float]:
    """Compute top-1 and top-5: percent of videos whose label (videos,) has one of the best scores.

    With fewer than five classes top-5 counts all of them.
    """
    ranked = scores.topk(min(5, scores.shape[1])).indices == labels[:, None]
    return {
        "top1": 100 * ranked[:, 0].double().mean().item(),
        "top5": 100 * ranked.any(1).double().mean().item(),
    }


def mean_average_precision(scores: Tensor, labels: Tensor) -> dict[str, float]:
    """Compute the mean of the classes' average precisions, in percent.

    ``labels`` (videos, classes) are 0 or 1. Classes without a video are left out, as in PySlowFast
    (slowfast/utils/meters.py, get_map). Raises InputError if no class is left.
    """
    shown = labels.bool().any(0)
    if not shown.any():
        problem = f"none of {len(labels)} evaluated videos has a label, so there is no mAP"
        raise InputError([f"{problem}: evaluate more videos"])
    columns = zip(scores[:, shown].T, labels[:, shown].T, strict=True)
    precisions = torch.stack([average_precision(*column) for column in columns])
    return {"map": 100 * precisions.mean().item()}


def average_precision(scores: Tensor, labels: Tensor) -> Tensor:
    """Compute the average precision of one class, a float64 scalar, like scikit-learn's average_precision_score.

    It is the sum, over all thresholds, of the precision times the gain in recall. ``scores`` and
    ``labels`` have shape (videos,). Labels are 0 or 1, and at least one must be 1.
    """
    order = scores.argsort(descending=True)
    ranked, hits = scores[order], labels[order].double().cumsum(0)
    # Videos of equal score pass a threshold together, so we mark the last of them. Otherwise the
    # result would depend on the order in which the sort leaves them.
    is_last = torch.ones_like(ranked, dtype=torch.bool)
    is_last[:-1] = ranked[1:] != ranked[:-1]
    num_taken = is_last.nonzero()[:, 0].double() + 1
    hits = hits[is_last]
    gains = hits.diff(prepend=hits.new_zeros(1)) / hits[-1]
    return (gains * hits / num_taken).sum()


def metrics_text(metrics: Mapping[str, float], num_classes: int | None = None) -> str:
    """Format metrics as "top-1 91.25 %, top-5 98.00 %". Of five classes or fewer, top-5 is 100 % and left out."""
    is_known = num_classes is not None and num_classes <= 5
    shown = {name: value for name, value in metrics.items() if not (is_known and name == "top5")}
    names = METRIC_NAMES | MORE_METRICS
    return ", ".join(f"{names[name]} {value:.2f} %" for name, value in shown.items())
