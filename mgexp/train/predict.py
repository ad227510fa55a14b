"""Which classes a trained model sees in videos that have no label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mgexp.train.step import Normalizer
from mgexp.train.task import Task


@dataclass(frozen=True)
class Prediction:
    """Of one video: (class, probability), the most probable first; or the ``error``, and no classes."""

    path: str
    classes: tuple[tuple[int, float], ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class Predictor:
    """A trained model, in eval mode on the device of ``normalizer``."""

    model: nn.Module
    normalizer: Normalizer
    task: Task

    @torch.inference_mode()
    def predict(
        self, paths: tuple[str, ...], batches: Iterable[Any], num_best: int
    ) -> Iterator[Prediction]:
        """The ``num_best`` classes of each of ``paths``, as soon as its last view was scored.

        ``batches`` are ``ViewBatch`` of all views of ``paths``, in their order. A probability is the score of the
        task over the views, their mean or their largest as the evaluation takes them. A video of which a view
        failed has an error.
        """
        shape, device = (len(paths), self.task.num_classes), self.normalizer.device
        sums = torch.full(shape, self.task.ensemble.start, device=device)
        num_views = torch.zeros(len(paths), device=device)
        errors: dict[int, str] = {}
        num_done = 0
        for batch in batches:
            errors.update(batch.errors)
            if len(batch.videos):
                videos = batch.videos.to(device)
                scores = self.task.scores(self.model(self.normalizer(batch.clips)).float())
                self.task.ensemble.add(sums, videos, scores)
                num_views += videos.bincount(minlength=len(paths))
            seen = [*batch.videos.tolist(), *(video for video, _ in batch.errors)]
            for video in range(num_done, max(seen)):  # views of the last one may follow
                scores = self.task.ensemble.probabilities(sums[video], num_views[video])
                yield _prediction(paths[video], scores, errors.get(video), num_best)
            num_done = max(seen)
        for video in range(num_done, len(paths)):
            scores = self.task.ensemble.probabilities(sums[video], num_views[video])
            yield _prediction(paths[video], scores, errors.get(video), num_best)


def _prediction(path: str, scores: torch.Tensor, error: str | None, num_best: int) -> Prediction:
    if error:
        return Prediction(path, error=error)
    best = scores.topk(num_best)
    classes = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return Prediction(path, tuple(classes))
