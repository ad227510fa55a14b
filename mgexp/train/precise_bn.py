"""Batch-norm statistics re-estimated over many mini-batches, on a copy of the model.

The estimate is fvcore's (``fvcore.nn.precise_bn``): mean and variance of the population of all mini-batches. That
library sees one process and one group a mini-batch; here the population is the same however many processes and
groups share it, and its variance is no difference of large squares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mgexp.dist import Processes
from mgexp.multigrid.batchnorm import keeping, set_num_groups, share_statistics
from mgexp.multigrid.sampler import ClipRequest, Stream
from mgexp.multigrid.schedule import Schedule
from mgexp.train.inputs import check_clips
from mgexp.train.step import Normalizer

SEED_OFFSET = 1_000_003  # a stream of its own: the same videos, other draws than training


def precise_requests(
    schedule: Schedule, seed: int, max_batches: int, processes: Processes
) -> list[list[ClipRequest]]:
    """This process's share of min(max_batches, ceil(N/B)) batches of B clips at the full shape."""
    recipe = schedule.recipe
    stream = Stream(schedule.num_videos, seed + SEED_OFFSET)
    num_batches = min(max_batches, math.ceil(schedule.num_videos / recipe.clips))
    share = recipe.clips // processes.count
    stride = None if recipe.stride is None else (recipe.stride, recipe.stride)
    firsts = [batch * recipe.clips + processes.rank * share for batch in range(num_batches)]
    return [
        [
            ClipRequest(stream.index_at(p), recipe.frames, recipe.crop, stride, (stream.seed, p))
            for p in range(first, first + share)
        ]
        for first in firsts
    ]


@torch.no_grad()
def with_precise_bn(
    model: nn.Module, batches: Iterable[Any], num_groups: int, normalizer: Normalizer
) -> nn.Module:
    """Gives ``model``, a copy of the trained one, the statistics of ``batches``, in eval mode.

    Normalises in ``num_groups`` groups as training does at the full shape. Every process must call it, with its
    share of the batches; all get the same statistics.
    """
    model.train()
    set_num_groups(model, num_groups)
    population = Population()
    with keeping(model) as layers:
        for batch in batches:
            check_clips(batch)
            for layer in layers:
                layer.kept = []
            model(normalizer(batch.clips, batch.flipped))
            kept = [stats for layer in layers for stats in layer.kept or ()]
            population.add(
                torch.cat([stats.means for stats in kept], dim=1),
                torch.cat([stats.biased_variances() for stats in kept], dim=1),
            )
    sizes = [layer.num_features for layer in layers]
    variances = (population.within + population.between).split_with_sizes(sizes)
    means = population.mean.split_with_sizes(sizes)
    for layer, mean, variance in zip(layers, means, variances, strict=True):
        assert layer.running_mean is not None and layer.running_var is not None
        layer.running_mean.copy_(mean)
        layer.running_var.copy_(variance)
    share_statistics(model, momentum=1.0)
    return model.eval()


@dataclass
class Population:
    """Mean and variance of all groups added, (C,) once there are some.

    ``within`` the groups, the mean of their biased variances; ``between``, the variance of their means. Source of
    the update: Chan, Golub and LeVeque, 1983.
    """

    num_batches: int = 0
    mean: Tensor = field(default_factory=partial(torch.zeros, ()))
    within: Tensor = field(default_factory=partial(torch.zeros, ()))
    between: Tensor = field(default_factory=partial(torch.zeros, ()))

    def add(self, means: Tensor, variances: Tensor) -> None:
        """The (groups, C) means and biased variances of a mini-batch, as many groups as in those before."""
        self.num_batches += 1
        share = 1 / self.num_batches
        apart = means.mean(0) - self.mean
        between = means.var(0, correction=0) + apart.square() * (1 - share)
        self.mean = self.mean + apart * share
        self.within = self.within + (variances.mean(0) - self.within) * share
        self.between = self.between + (between - self.between) * share
