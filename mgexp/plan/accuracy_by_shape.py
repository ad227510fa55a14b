"""Measure what a trained network sees at every shape of a schedule, and say which coarse shapes to leave out.

A coarse clip is cheap, but it teaches little if its class can hardly be seen. So a trained baseline classifies
validation videos at each shape. A network that is trained at a coarse shape may see more there.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace

from torch import Tensor

from mgexp.config.keys import Config
from mgexp.data.loader import build_train_loader, build_view_loader
from mgexp.dist import Processes, device_of
from mgexp.multigrid.phases import num_bn_groups
from mgexp.multigrid.recipe import Multigrid, Recipe
from mgexp.multigrid.schedule import Schedule, StepShape
from mgexp.multigrid.shapes import clip_sizes
from mgexp.plan.doctor import Finding, Status
from mgexp.run.folder import METRIC_NAMES, RunDir
from mgexp.train.evaluate import Evaluation, Scores, check_decoded, score_views
from mgexp.train.precise_bn import precise_requests, with_precise_bn
from mgexp.train.predict import Predictor, build_predictor
from mgexp.train.setup import Inputs
from mgexp.video.paths import evenly_spaced

Size = tuple[int, int]
"""Frames and crop of a clip."""

SHAPES = "coarse shapes"
"""The name of the finding on all shapes together."""
LEAST_KEPT = 0.5
"""The advice leaves out shapes at which the network keeps a smaller share of its accuracy above chance.
Assumption: below it, a clip shows its class less often than it hides it. On the quickstart, a shape with 27 %
costs 41 points. Those with 63 % or more cost nothing, but neither does one with 13 %, 4 × 45². On MIRACL-VC1 all
coarse shapes have 1 to 38 %, and every row with them lost in the first folds (see the prose.md of both)."""
MAX_VIDEOS = 500
"""Validation videos to score at each shape. The standard error of an accuracy is then 2.2 points at most."""


def build_shape_findings(
    cfg: Config, inputs: Inputs, run_dir: RunDir, seconds: Mapping[StepShape, float]
) -> Iterator[Finding]:
    """Score the model of ``run_dir`` at every shape of the schedule, and say which shapes to leave out.

    ``seconds``: seconds of a step at each size. Raises InputError if the model does not fit ``cfg``.
    """
    schedule = inputs.schedule
    predictor = build_predictor(cfg, run_dir, device_of(cfg.DEVICE))
    # NUM_WORKERS may be auto, and the doctor starts no workers.
    cfg = replace(cfg, DATA_LOADER=replace(cfg.DATA_LOADER, NUM_WORKERS=0))
    clip_seconds = {(one.frames, one.crop): value / one.clips for one, value in seconds.items()}
    full = (schedule.recipe.frames, schedule.recipe.crop)
    kept: dict[Size, float] = {}
    best, chance = 0.0, 0.0
    for size in sorted({full, *strides(schedule)}, key=lambda one: -one[0] * one[1] ** 2):
        found = build_evaluation(cfg, inputs, predictor, size)
        metric, value = next(iter(found.metrics.items()))
        if size == full:
            best, chance = value, 100 * chance_of(found.labels)
        kept[size] = share_kept(value, best, chance)
        text = (
            f"{METRIC_NAMES[metric]} {value:.1f} %, keeps {kept[size]:.0%} of what is above chance"
        )
        values = {"frames": size[0], "crop": size[1], metric: value, "kept": kept[size]}
        if size in clip_seconds:
            text += f"; a training clip takes {clip_seconds[size]:.2g} s"
            values["clip_seconds"] = clip_seconds[size]
        status: Status = "OK" if kept[size] >= LEAST_KEPT else "warning"
        yield Finding(f"clips of {size[0]} x {size[1]}²", status, text, values=values)
    yield leaving_finding(schedule.recipe, schedule.multigrid, kept)


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


def leaving_finding(recipe: Recipe, multigrid: Multigrid, kept: Mapping[Size, float]) -> Finding:
    """Say which shapes to leave out of the two cycles, and print the keys without them.

    A long-cycle shape is left out for its own share. A factor of the short cycle is left out if it
    makes a shape with too small a share out of one of the remaining shapes.
    """
    name = SHAPES
    lost = [size for size, share in kept.items() if share < LEAST_KEPT]
    if kept[recipe.frames, recipe.crop] < 1:
        remedy = "train the run longer, or with another learning rate"
        return Finding(name, "warning", "at the full shape the network is not above chance", remedy)
    if not lost:
        return Finding(name, "OK", f"the network keeps {LEAST_KEPT:.0%} or more at every shape")
    shorts = multigrid.short_factors
    full = (recipe.frames, recipe.crop)
    all_pairs = multigrid.long_factors
    longs = [pair for pair in all_pairs if clip_sizes(*full, [pair]).isdisjoint(lost)]

    def is_kept(factor: float) -> bool:
        return clip_sizes(*full, longs, (factor,), multigrid.short_crops_of).isdisjoint(lost)

    keys = []
    if len(longs) < len(all_pairs):
        # Frames must come out whole, so their factor keeps all digits.
        pairs = ",".join(f"[{t:.17g},{s:.5g}]" for t, s in longs)
        keys.append(f"LONG_CYCLE_FACTORS '[{pairs}]'" if len(longs) > 1 else "LONG_CYCLE False")
    remaining = [factor for factor in shorts if is_kept(factor)]
    if len(remaining) < len(shorts):
        numbers = ",".join(f"{factor:.5g}" for factor in remaining)
        keys.append(f"SHORT_CYCLE_FACTORS '[{numbers}]'" if remaining else "SHORT_CYCLE False")
    shapes = ", ".join(f"{frames} x {crop}²" for frames, crop in sorted(lost))
    text = f"the network keeps less than {LEAST_KEPT:.0%} at {shapes}: leave these shapes out"
    if len(longs) < 2 and not remaining:
        remedy = "train the baseline: without these shapes only its own is left"
        return Finding(name, "warning", text, remedy)
    return Finding(name, "warning", text, " ".join(f"MULTIGRID.{key}" for key in keys))
