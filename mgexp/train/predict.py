"""Predict the classes of videos that have no label, with a trained model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mgexp.config.keys import Config
from mgexp.config.load import load_config
from mgexp.data.classes import read_class_names
from mgexp.errors import InputError
from mgexp.run.confusion import name_of
from mgexp.run.files import write_rows
from mgexp.run.folder import RunDir
from mgexp.text import counted
from mgexp.train.checkpoint import build_trained_model
from mgexp.train.step import Normalizer
from mgexp.train.task import Task, build_task

COLUMNS = ("video", "seconds", "rank", "label", "name", "probability", "error")
"""The columns of the CSV file. ``seconds`` is always empty: a prediction is for a whole video."""


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
            return Prediction(paths[video], best_of(scores, num_best))

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


def best_of(scores: Tensor, num_best: int) -> tuple[tuple[int, float], ...]:
    """Return the ``num_best`` pairs (class, probability) of ``scores`` (classes,), the most probable first."""
    best = scores.topk(num_best)
    return tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def write_csv(path: Path, predictions: Iterable[Prediction], names: Sequence[str]) -> None:
    """Write a line for each video and class, the most probable first, and one for each video that failed."""
    rows: list[Sequence[object]] = [COLUMNS]
    for prediction in predictions:
        video = prediction.path
        for rank, (label, share) in enumerate(prediction.classes, start=1):
            rows.append((video, None, rank, label, name_of(label, names), f"{share:.6f}", None))
        if prediction.error:
            rows.append((video, None, None, None, None, None, prediction.error))
    write_rows(path, rows)


def load_run(root: Path) -> tuple[RunDir, Config]:
    """Return a run folder and its configuration. Raises InputError if there is no run."""
    run_dir = RunDir(root)
    if not run_dir.config_yaml.is_file():
        problem = f"--run {root} is not a run folder: {run_dir.config_yaml} does not exist"
        raise InputError([f"{problem}; give the folder that tools/run_net.py wrote"])
    return run_dir, load_config(run_dir.config_yaml)


def read_names(given: Path | None, run_dir: RunDir, num_classes: int) -> tuple[str, ...]:
    """Read the names of the classes in ``given``, or else those of the run, if its data set had any.

    Raises InputError if they are not ``num_classes``.
    """
    names = read_class_names(given) if given else run_dir.class_names()
    if names and len(names) != num_classes:
        named = counted(len(names), "class", "classes")
        problem = f"{given or run_dir.classes_txt} names {named}, the model has {num_classes}"
        raise InputError([f"{problem}: give the file of the classes that the run was trained on"])
    return names


def build_predictor(cfg: Config, run_dir: RunDir, device: torch.device) -> Predictor:
    """Load the model of a finished run. Raises InputError if it is missing or does not fit ``cfg``."""
    model = build_trained_model(cfg, run_dir)
    normalizer = Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, device)
    return Predictor(model.to(device).eval(), normalizer, build_task(cfg))
