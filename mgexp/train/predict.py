"""Predict the classes of videos, or of their parts, with a trained model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mgexp.config.keys import Config
from mgexp.config.load import load_config
from mgexp.data.classes import read_class_names
from mgexp.data.records import Record
from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError
from mgexp.models.build import build_model
from mgexp.models.names import head_of
from mgexp.multigrid.batchnorm import grouped_layers
from mgexp.run.clock import Clock
from mgexp.run.folder import RunDir
from mgexp.run.torch_file import load_torch
from mgexp.text import counted
from mgexp.train.checkpoint import best_step, build_first_state, build_trained_model
from mgexp.train.evaluate import Evaluator
from mgexp.train.precise_bn import build_precise_bn
from mgexp.train.precision import Precision
from mgexp.train.setup import build_fit, build_inputs
from mgexp.train.step import Normalizer
from mgexp.train.task import Task, build_task


@dataclass(frozen=True)
class Prediction:
    """Prediction for the video of ``record``: the probability of each class, (classes,), on the CPU.

    ``features``, where they are wanted: the vector before the classifier, (channels,), the mean over the views.
    If the video cannot be read, ``error`` says why and there is nothing else.
    """

    record: Record
    probabilities: Tensor | None = None
    features: Tensor | None = None
    error: str | None = None

    def best(self, num: int) -> tuple[tuple[int, float], ...]:
        """Return the ``num`` most probable pairs (class, probability), the best first; () after an error."""
        return () if self.probabilities is None else best_of(self.probabilities, num)


@dataclass(frozen=True)
class Predictor:
    """A trained model in eval mode, on the device of ``normalizer``.

    With ``classifier``, its last layer, a prediction has features: the means of the vectors that this layer gets.
    """

    model: nn.Module
    normalizer: Normalizer
    task: Task
    classifier: nn.Linear | None = None

    @torch.inference_mode()
    def predict(self, records: Sequence[Record], batches: Iterable[Any]) -> Iterator[Prediction]:
        """Yield the prediction of each of ``records``, as soon as its last view is scored.

        ``batches`` are of type ``ViewBatch`` and hold all views of ``records``, in their order. A
        probability is the mean or the largest of the views' scores, as in evaluation. If one view
        of a video fails, the prediction is an error.
        """
        device = self.normalizer.device
        sums = self.task.no_scores(len(records), device)
        num_views = torch.zeros(len(records), device=device)
        num_channels = self.classifier.in_features if self.classifier else 0
        features = torch.zeros(len(records), num_channels, device=device)
        errors: dict[int, str] = {}

        def prediction(video: int) -> Prediction:
            if error := errors.get(video):
                return Prediction(records[video], error=error)
            scores = self.task.probabilities(sums[video], num_views[video]).cpu()
            mean = (features[video] / num_views[video]).cpu() if self.classifier else None
            return Prediction(records[video], scores, mean)

        num_done = 0
        inputs: list[Tensor] = []  # of the classifier, in the last batch
        keep = self.classifier and self.classifier.register_forward_pre_hook(
            lambda _, given: inputs.append(given[0])
        )
        with keep or nullcontext():
            for batch in batches:
                errors.update(batch.errors)
                if len(batch.videos):
                    videos = batch.videos.to(device)
                    scores = self.task.scores(self.model(self.normalizer(batch.clips)).float())
                    self.task.add_scores(sums, videos, scores)
                    num_views += videos.bincount(minlength=len(records))
                    if inputs:
                        # A ResNet may classify each place (N, T, H, W, C) and take the mean of the logits.
                        vectors = inputs.pop().reshape(len(videos), -1, num_channels).mean(1)
                        features.index_add_(0, videos, vectors.float())
                # The views are in order, so all videos before the last one of this batch are complete.
                # The next batch may hold more views of the last one.
                last = max([*batch.videos.tolist(), *(video for video, _ in batch.errors)])
                yield from map(prediction, range(num_done, last))
                num_done = last
            yield from map(prediction, range(num_done, len(records)))


def best_of(scores: Tensor, num_best: int) -> tuple[tuple[int, float], ...]:
    """Return the ``num_best`` pairs (class, probability) of ``scores`` (classes,), the most probable first."""
    best = scores.topk(num_best)
    return tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def load_run(root: Path, pairs: Sequence[str] = ()) -> tuple[RunDir, Config]:
    """Return a run folder and its configuration with the KEY VALUE ``pairs``. Raises InputError without a run."""
    run_dir = RunDir(root)
    if not run_dir.config_yaml.is_file():
        problem = f"--run {root} is not a run folder: {run_dir.config_yaml} does not exist"
        raise InputError([f"{problem}; give the folder that tools/run_net.py wrote"])
    return run_dir, load_config(run_dir.config_yaml, pairs)


def read_names(given: Path | None, run_dir: RunDir | None, num_classes: int) -> tuple[str, ...]:
    """Read the names of the classes in ``given``, or else those of the run, if its data set had any.

    Raises InputError if they are not ``num_classes``.
    """
    file = given or (run_dir and run_dir.classes_txt)
    names = read_class_names(given) if given else run_dir.class_names() if run_dir else ()
    if names and len(names) != num_classes:
        named = counted(len(names), "class", "classes")
        problem = f"{file} names {named}, the model has {num_classes}"
        raise InputError([f"{problem}: give the file of the classes that the run was trained on"])
    return names


def build_predictor(
    cfg: Config,
    run_dir: RunDir | None,
    device: torch.device,
    weights: str = "",
    is_best: bool = False,
    with_features: bool = False,
    may_detect: bool = False,
) -> Predictor:
    """Load the model of a finished run, of its best evaluation if ``is_best``, or else the file ``weights``.

    Raises InputError if the weights are missing or do not fit ``cfg``, and for a detector unless ``may_detect``.
    """
    task = build_task(cfg)
    if task.takes_labels and not may_detect:
        raise InputError(
            [f"MODEL.MODEL_NAME = {cfg.MODEL.MODEL_NAME}: this is for networks that classify"]
        )
    if weights or run_dir is None:
        model = build_weighted_model(cfg, weights)
    elif is_best:
        model = build_best_model(cfg, run_dir, device)
    else:
        model = build_trained_model(cfg, run_dir)
    normalizer = Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, device)
    classifier = build_classifier(cfg, model) if with_features else None
    return Predictor(model.to(device).eval(), normalizer, task, classifier)


def build_weighted_model(cfg: Config, weights: str) -> nn.Module:
    """Build the model with the weights of a file or an address, which must have its classifier too."""
    model = build_model(cfg)
    fit = build_fit(cfg, model, weights)
    if fit.left:
        classes = f"classifier of {cfg.MODEL.NUM_CLASSES} classes"
        raise InputError([f"{fit.file.path} has no {classes}, which MODEL.NUM_CLASSES asks for"])
    fit.load_into(model)
    return model


def build_best_model(cfg: Config, run_dir: RunDir, device: torch.device) -> nn.Module:
    """Build the model that had the best evaluation during training, from the checkpoint that the run keeps.

    A checkpoint has the moving statistics of batch norm. The evaluation took precise ones, so they are computed
    from the training videos again. Raises InputError if there was no such evaluation or the videos are gone.
    """
    step = best_step(run_dir)
    if step is None:
        problem = (
            f"{run_dir.root} has no evaluation during training, of which one could be the best"
        )
        raise InputError([problem])
    state = build_first_state(cfg, None, Precision(), device, Clock())
    try:
        state.load_state_dict(load_torch(run_dir.checkpoint(step)))
    except (OSError, TrainingError, KeyError, RuntimeError, ValueError) as error:
        raise InputError([f"{run_dir.checkpoint(step)} cannot be used: {error}"]) from error
    task, normalizer = build_task(cfg), Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, device)
    precise = None
    if cfg.BN.USE_PRECISE_STATS and grouped_layers(state.model):
        # Without TRAIN.ENABLE nothing is checked that only training needs.
        cfg = replace(cfg, TRAIN=replace(cfg.TRAIN, ENABLE=False))
        inputs = build_inputs(cfg, [], 1, is_here=False, is_main=False)
        precise = build_precise_bn(cfg, inputs, device, Processes(), run_dir.failures_jsonl)
    evaluator = Evaluator(run_dir, normalizer, Processes(), task, precise)
    # The layers of training have other forms on some devices.
    model = build_model(cfg)
    model.load_state_dict(evaluator.ready_model(state).state_dict())
    return model


def build_classifier(cfg: Config, model: nn.Module) -> nn.Linear:
    """Find the last layer of a network, ``head`` or the last ``proj``. Raises InputError if there is none."""
    names = head_of(model.state_dict())
    layer = model.get_submodule(names[0].rpartition(".")[0]) if names else None
    if isinstance(layer, nn.Linear) and layer.out_features == cfg.MODEL.NUM_CLASSES:
        return layer
    problem = f"MODEL.MODEL_NAME = {cfg.MODEL.MODEL_NAME} has no nn.Linear called head that gives the logits"
    raise InputError([f"{problem}, whose input could be the features"])
