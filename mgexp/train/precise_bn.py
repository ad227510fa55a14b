"""Batch-norm statistics re-estimated over many mini-batches, on a copy of the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from mgexp import dist
from mgexp.dist import Processes
from mgexp.multigrid.batchnorm import set_num_groups
from mgexp.multigrid.sampler import ClipRequest, Stream
from mgexp.multigrid.schedule import Schedule
from mgexp.quiet import no_jit_warning
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


def with_precise_bn(
    model: nn.Module,
    batches: Iterable[Any],
    num_batches: int,
    num_groups: int,
    normalizer: Normalizer,
    processes: Processes,
) -> nn.Module:
    """Gives ``model``, a copy of the trained one, the statistics of ``batches``, in eval mode.

    Normalises in ``num_groups`` groups as training does at the full shape. The estimate is fvcore's
    (population mean and variance over all batches), averaged over the processes.
    """
    with no_jit_warning():
        from fvcore.nn.precise_bn import get_bn_modules, update_bn_stats

    model.train()
    set_num_groups(model, num_groups)
    with torch.no_grad():
        update_bn_stats(model, _inputs(batches, normalizer), num_iters=num_batches)
        for layer in get_bn_modules(model):
            _average(layer, processes)
    return model.eval()


def _inputs(batches: Iterable[Any], normalizer: Normalizer) -> Iterator[torch.Tensor]:
    for batch in batches:
        check_clips(batch)
        yield normalizer(batch.clips, batch.flipped)


def _average(layer: Any, processes: Processes) -> None:  # noqa: ANN401
    """Mean of means; mean of variances plus variance of means."""
    mean, var = layer.running_mean, layer.running_var
    own_mean = mean.clone()
    dist.sum_(processes, mean).div_(processes.count)
    var.add_((own_mean - mean) ** 2)
    dist.sum_(processes, var).div_(processes.count)
