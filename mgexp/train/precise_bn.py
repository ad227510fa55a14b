"""Compute precise batch-norm statistics for an evaluation, from many training batches at the full shape.

The estimate is the same as in fvcore (``fvcore.nn.precise_bn``): the mean and the variance of the
population of all mini-batches. fvcore supports one process and one group per mini-batch. Here the
result does not depend on how many processes and groups share the population. The variance is not
computed as a difference of large squares, which would lose digits.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mgexp.config.keys import Config
from mgexp.data.loader import build_train_loader
from mgexp.dist import Processes
from mgexp.models.layers import Draws, set_draws
from mgexp.multigrid.batchnorm import (
    GroupedBatchNorm3d,
    grouped_layers,
    keeping,
    set_num_groups,
    share_statistics,
)
from mgexp.multigrid.phases import count_bn_groups
from mgexp.multigrid.recipe import Recipe
from mgexp.multigrid.sampler import ClipRequest, Stream
from mgexp.run.log import LOGGER
from mgexp.train.setup import Inputs
from mgexp.train.step import Normalizer, check_clips, seed_step, split

SEED_OFFSET = 1_000_003
"""Added to the seed of training, so that the clips are other draws from the same videos."""


FIRST_DRAWS = Draws(seed=0, step=0)


@dataclass(frozen=True)
class PreciseBn:
    """Source of precise statistics: ``batches()`` loads clips, which form ``num_groups`` BN groups.

    At most ``max_clips`` clips go through the network at once (0: all of them). ``draws`` belongs to the first
    clip of the first batch.
    """

    batches: Callable[[], Iterable[Any]]
    num_groups: int
    max_clips: int = 0
    draws: Draws = FIRST_DRAWS


def precise_requests(
    recipe: Recipe,
    num_videos: int,
    seed: int,
    max_batches: int,
    processes: Processes,
    weights: Sequence[float] | None = None,
) -> list[list[ClipRequest]]:
    """List this process's share of min(max_batches, ceil(N/B)) batches of B clips.

    The clips are drawn as in training at the full shape of ``recipe``, but without the short cycle.
    """
    # Without AUG.REPEATS, which would show fewer videos in as many batches.
    stream = Stream(num_videos, seed + SEED_OFFSET, weights=weights)
    num_batches = min(max_batches, math.ceil(num_videos / recipe.clips))
    share = recipe.clips // processes.count
    stride = None if recipe.stride is None else (recipe.stride, recipe.stride)
    firsts = [batch * recipe.clips + processes.rank * share for batch in range(num_batches)]
    return [
        stream.requests(range(first, first + share), recipe.frames, recipe.crop, stride)
        for first in firsts
    ]


def build_precise_bn(
    cfg: Config, inputs: Inputs, device: torch.device, processes: Processes, failures: Path
) -> PreciseBn | None:
    """Build the source of training clips at the full shape, in its BN groups; None if the run wants none."""
    if not cfg.BN.USE_PRECISE_STATS:
        return None
    schedule = inputs.schedule
    max_batches, num_videos = cfg.BN.NUM_BATCHES_PRECISE, schedule.num_videos
    weights = inputs.draw_weights(cfg.SOLVER.CLASS_WEIGHTS)
    requests = precise_requests(
        schedule.recipe, num_videos, cfg.RNG_SEED, max_batches, processes, weights
    )
    # Each evaluation has a loader of its own.
    arguments = (cfg, inputs.train, requests, device, inputs.opener, failures)
    groups = count_bn_groups(schedule.recipe.clips, processes.count, cfg.MULTIGRID.BN_BASE_SIZE)
    first_clip = processes.rank * schedule.recipe.clips // processes.count
    return PreciseBn(
        partial(build_train_loader, *arguments),
        groups,
        cfg.TRAIN.MAX_CLIPS_PER_GPU,
        Draws(cfg.RNG_SEED + SEED_OFFSET, 0, first_clip),
    )


@torch.no_grad()
def with_precise_bn(model: nn.Module, source: PreciseBn, normalizer: Normalizer) -> nn.Module:
    """Replace the statistics of ``model``, a copy, by those of ``source``; return it in eval mode.

    The model normalises in the groups of ``source``, as training does at the full shape. Every process
    must call this with its share of the batches. All processes get the same statistics. The log names each video
    that was unusable and therefore replaced.
    """
    # A network may have no batch norm, as most transformers. Then no batch is loaded.
    if not grouped_layers(model):
        return model.eval()
    # In training mode the layers normalise with the statistics of each batch, as in training. With
    # the running statistics a deeper layer would see other inputs than it has in training.
    model.train()
    # Mean and variance of each batch, of shape (C,), by layer.
    populations: dict[GroupedBatchNorm3d, list[tuple[Tensor, Tensor]]] = defaultdict(list)
    unusable: set[int] = set()
    with keeping(model) as layers:
        for number, loaded in enumerate(source.batches()):
            check_clips(loaded)
            batch = loaded.on(normalizer.device)
            for index, reason in batch.unusable:
                if index not in unusable:
                    LOGGER.warning(
                        "unusable video, replaced in the statistics of batch norm: %s", reason
                    )
                    unusable.add(index)
            for layer in layers:
                layer.kept = []
            # A network may have dropout before a norm. It draws the same after a resume.
            seed_step(source.draws.seed, number)
            for part in split(len(batch.clips), source.num_groups, source.max_clips):
                set_num_groups(model, part.num_pieces)
                draws = replace(source.draws, step=number).after(part.first)
                set_draws(model, draws, part.clips)
                own = batch.map(itemgetter(slice(part.first, part.first + part.clips)))
                model(normalizer(own.clips, own.flipped))
            # The forward pass may not use every layer of a custom model, and may use one several times.
            for layer in layers:
                if layer.kept:
                    means = torch.cat([stats.means for stats in layer.kept])
                    within = torch.cat([stats.biased_variances() for stats in layer.kept]).mean(0)
                    batch_stats = means.mean(0), within + means.var(0, correction=0)
                    populations[layer].append(batch_stats)
    # All groups and batches have equally many values. So the variance of several is the mean of
    # their variances plus the variance of their means, without weights.
    for layer, of_batches in populations.items():
        means, variances = map(torch.stack, zip(*of_batches, strict=True))
        assert layer.running_mean is not None and layer.running_var is not None
        layer.running_mean.copy_(means.mean(0))
        layer.running_var.copy_(variances.mean(0) + means.var(0, correction=0))
    # A momentum of 1 says that these are the statistics of the clips, and not moving averages.
    share_statistics(model, momentum=1.0)
    return model.eval()
