#!/usr/bin/env python3
"""Measure what a trained network sees at every shape of a row: its accuracy, and the share that it keeps.

    python benchmarks/accuracy_by_shape.py --cfg ROW.yaml --run RUN [KEY VALUE ...]

A coarse clip is cheap, but it teaches little if its class can hardly be seen. So a trained baseline classifies
validation videos at each shape, with the batch-norm statistics of that shape. "Kept" is the share of its accuracy
above chance. A network that is trained at a coarse shape may see more there. Exit 0; 2 bad input; 4 stopped.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

# mgexp comes before torch, because it sets how torch's threads wait.
import mgexp  # noqa: F401

# isort: split
import simplejson
from gradient_noise import read
from torch import Tensor

from mgexp.config.keys import Config
from mgexp.data.loader import build_train_loader, build_view_loader
from mgexp.dist import Processes, device_of
from mgexp.multigrid.phases import num_bn_groups
from mgexp.multigrid.schedule import Schedule
from mgexp.options import ToolParser, add_import_option, run_tool
from mgexp.run.folder import RunDir
from mgexp.text import aligned
from mgexp.train.evaluate import Evaluation, Scores, check_decoded, score_views
from mgexp.train.precise_bn import precise_requests, with_precise_bn
from mgexp.train.predict import Predictor, build_predictor
from mgexp.train.setup import Inputs
from mgexp.video.paths import evenly_spaced

Size = tuple[int, int]
"""Frames and crop of a clip."""

MAX_VIDEOS = 500
"""Validation videos to score at each shape. The standard error of an accuracy is then 2.2 points at most."""


def measure(cfg: Config, inputs: Inputs, predictor: Predictor) -> Iterator[dict[str, float]]:
    """Score the network at every shape of the schedule, the full shape first."""
    schedule = inputs.schedule
    full = (schedule.recipe.frames, schedule.recipe.crop)
    best, chance = 0.0, 0.0
    for size in sorted({full, *strides(schedule)}, key=lambda size: -size[0] * size[1] ** 2):
        evaluation = build_evaluation(cfg, inputs, predictor, size)
        value = next(iter(evaluation.metrics.values()))
        if size == full:
            best, chance = value, 100 * chance_of(evaluation.labels)
        kept = share_kept(value, best, chance)
        yield {"frames": size[0], "crop": size[1], "accuracy": value, "kept": kept}


def strides(schedule: Schedule) -> dict[Size, int | None]:
    """Return the shapes of the schedule, with the longest stride that their clips draw in training."""
    return {
        (shape.frames, shape.crop): phase.stride_range and phase.stride_range[1]
        for phase in schedule.phases
        for shape in phase.cycle.shapes
    }


def build_evaluation(cfg: Config, inputs: Inputs, predictor: Predictor, size: Size) -> Evaluation:
    """Score one centre view of each validation video at ``size``, with the batch-norm statistics of that size."""
    schedule, device = inputs.schedule, predictor.normalizer.device
    frames, crop = size
    stride = strides(schedule).get(size, schedule.recipe.stride)
    # Measured with the quickstart's baseline, 300 videos, 98 % at 16 x 64²: at 8 x 45² these
    # statistics give 85 %, those of the full shape 59 %. At 4 x 45² the longest stride gives 33 %,
    # and the full shape's stride 27 %.
    recipe = replace(schedule.recipe, frames=frames, crop=crop, stride=stride)
    max_batches, num_videos = cfg.BN.NUM_BATCHES_PRECISE, schedule.num_videos
    requests = precise_requests(recipe, num_videos, cfg.RNG_SEED, max_batches, Processes())
    loader = build_train_loader(cfg, inputs.train, requests, device, inputs.opener)
    groups = num_bn_groups(recipe.clips, 1, cfg.MULTIGRID.BN_BASE_SIZE)
    clone, limit = copy.deepcopy(predictor.model), cfg.TRAIN.MAX_CLIPS_PER_GPU
    model = with_precise_bn(clone, loader, groups, predictor.normalizer, limit)
    records = evenly_spaced(inputs.val, MAX_VIDEOS)
    keys = replace(
        cfg.DATA,
        NUM_FRAMES=frames,
        TRAIN_CROP_SIZE=crop,
        SAMPLING_RATE=stride or cfg.DATA.SAMPLING_RATE,
    )
    shown = replace(cfg, DATA=keys)
    views = build_view_loader(shown, records, False, device, Processes(), inputs.opener)
    scores = Scores(len(records), predictor.task, device)
    check_decoded(score_views(model, views, scores, predictor.normalizer))
    return scores.reduce(Processes())


def chance_of(labels: Tensor) -> float:
    """Return the share that a network reaches without a look at the videos.

    It is the share of the most frequent class. If videos have many labels, ``labels`` is (videos,
    classes), and it is the mean share of the classes that occur.
    """
    if labels.dim() > 1:
        shares = labels.double().mean(0)
        return shares[shares > 0].mean().item()
    return labels.bincount().max().item() / len(labels)


def share_kept(value: float, best: float, chance: float) -> float:
    """Return which share of its accuracy above ``chance`` a network keeps, where ``best`` is at the full shape."""
    return max(0.0, value - chance) / (best - chance) if best > chance else 0.0


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = ToolParser(__doc__, "--cfg YAML --run RUN [KEY VALUE ...]")
    add = parser.add_argument
    add("--cfg", type=Path, required=True, help="YAML of a row, whose shapes are measured")
    add_import_option(parser)
    add("--run", type=Path, required=True, help="run folder of a trained baseline")
    add("--json", action="store_true", help="for programs")
    add("overrides", nargs="*", metavar="KEY VALUE", help="configuration keys")
    options = parser.parse_intermixed_args(arguments)
    cfg, inputs = read(options.cfg, options.overrides)
    predictor = build_predictor(cfg, RunDir(options.run), device_of(cfg.DEVICE))
    shapes = [*measure(cfg, inputs, predictor)]
    if options.json:
        print(simplejson.dumps(shapes, indent=2))
    else:
        lines = [
            (
                f"{shape['frames']} x {shape['crop']}²",
                f"{shape['accuracy']:.1f}",
                f"{shape['kept']:.0%}",
            )
            for shape in shapes
        ]
        print(aligned([("clips", "accuracy", "kept"), *lines]))
    return 0


if __name__ == "__main__":
    sys.exit(run_tool(main))
