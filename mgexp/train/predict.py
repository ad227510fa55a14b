"""Predict the classes of videos that have no label, with a trained model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mgexp.config.keys import Config
from mgexp.errors import InputError, TrainingError
from mgexp.models.build import build_model
from mgexp.run.folder import RunDir
from mgexp.run.torch_file import load_torch
from mgexp.train.step import Normalizer
from mgexp.train.task import Task, build_task


@dataclass(frozen=True)
class Prediction:
    """Prediction for the video at ``path``: pairs (class, probability), the most probable first.

    If the video cannot be read, ``error`` says why and ``classes`` is empty.
    """

    path: str
    classes: tuple[tuple[int, float], ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class Predictor:
    """A trained model in eval mode, on the device of ``normalizer``."""

    model: nn.Module
    normalizer: Normalizer
    task: Task

    @torch.inference_mode()
    def predict(
        self, paths: tuple[str, ...], batches: Iterable[Any], num_best: int
    ) -> Iterator[Prediction]:
        """Yield the ``num_best`` classes of each of ``paths``, as soon as its last view is scored.

        ``batches`` are of type ``ViewBatch`` and hold all views of ``paths``, in their order. A
        probability is the mean or the largest of the views' scores, as in evaluation. If one view
        of a video fails, the prediction is an error.
        """
        device = self.normalizer.device
        sums = self.task.no_scores(len(paths), device)
        num_views = torch.zeros(len(paths), device=device)
        errors: dict[int, str] = {}

        def prediction(video: int) -> Prediction:
            if error := errors.get(video):
                return Prediction(paths[video], error=error)
            scores = self.task.probabilities(sums[video], num_views[video])
            best = scores.topk(num_best)
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            return Prediction(paths[video], tuple(pairs))

        num_done = 0
        for batch in batches:
            errors.update(batch.errors)
            if len(batch.videos):
                videos = batch.videos.to(device)
                scores = self.task.scores(self.model(self.normalizer(batch.clips)).float())
                self.task.add_scores(sums, videos, scores)
                num_views += videos.bincount(minlength=len(paths))
            # The views are in order, so all videos before the last one of this batch are complete.
            # The next batch may hold more views of the last one.
            last = max([*batch.videos.tolist(), *(video for video, _ in batch.errors)])
            yield from map(prediction, range(num_done, last))
            num_done = last
        yield from map(prediction, range(num_done, len(paths)))


def build_predictor(cfg: Config, run_dir: RunDir, device: torch.device) -> Predictor:
    """Load the model of a finished run. Raises InputError if it is missing or does not fit ``cfg``."""
    if not run_dir.model.is_file():
        raise InputError([f"{run_dir.model} does not exist: train the run to its end"])
    try:
        model = build_model(cfg)
        model.load_state_dict(load_torch(run_dir.model))
    except (TrainingError, RuntimeError, ValueError) as error:
        problem = f"{run_dir.model} is not the model of {run_dir.config_yaml}: {error}"
        raise InputError([problem]) from error
    normalizer = Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, device)
    return Predictor(model.to(device).eval(), normalizer, build_task(cfg))
