"""Which classes a trained model sees in videos that have no label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mgexp.train.step import Normalizer


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
    num_classes: int

    @torch.inference_mode()
    def predict(
        self, paths: tuple[str, ...], batches: Iterable[Any], num_best: int
    ) -> Iterator[Prediction]:
        """The ``num_best`` classes of each of ``paths``, as soon as its last view was scored.

        ``batches`` are ``ViewBatch`` of all views of ``paths``, in their order. A probability is the mean of
        the softmax over the views, which ranks as the evaluation does. A video of which a view failed has
        an error.
        """
        sums = torch.zeros(len(paths), self.num_classes, device=self.normalizer.device)
        errors: dict[int, str] = {}
        num_done = 0
        for batch in batches:
            errors.update(batch.errors)
            if len(batch.videos):
                scores = self.model(self.normalizer(batch.clips)).float().softmax(1)
                sums.index_add_(0, batch.videos.to(sums.device), scores)
            seen = [*batch.videos.tolist(), *(video for video, _ in batch.errors)]
            for video in range(num_done, max(seen)):  # views of the last one may follow
                yield self._prediction(paths[video], sums[video], errors.get(video), num_best)
            num_done = max(seen)
        for video in range(num_done, len(paths)):
            yield self._prediction(paths[video], sums[video], errors.get(video), num_best)

    def _prediction(
        self, path: str, sums: torch.Tensor, error: str | None, num_best: int
    ) -> Prediction:
        if error:
            return Prediction(path, error=error)
        best = (sums / sums.sum()).topk(num_best)
        classes = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return Prediction(path, tuple(classes))
