"""Batch normalisation of clips that several processes share."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def span_group(span: int) -> dist.ProcessGroup:
    """Return the group of ``span`` consecutive processes that this process belongs to."""
    # Found by its size and not kept in the module, since a model with a ProcessGroup could not be copied.
    running = dist.is_available() and dist.is_initialized()
    world = dist.get_world_size() if running else 1
    if world % span:
        raise ValueError(
            f"a BN group cannot span {span} processes: there are {world}; "
            "start a multiple of that number under torch.distributed, or give each process more clips"
        )
    return _make_span_group(dist.group.WORLD, span)


@functools.cache
def _make_span_group(_world: dist.ProcessGroup, span: int) -> dist.ProcessGroup:
    own, _ = dist.new_subgroups(group_size=span)
    return own


class SpanningNorm(torch.autograd.Function):
    """Normalise this process's clips with the statistics of a group of processes, which must all take part.

    Return them with the (groups, C) means and unbiased variances of the groups of all processes.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - the stubs of its own class do not know attributes set on it
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        eps: float,
        processes: dist.ProcessGroup,
    ) -> tuple[Tensor, Tensor, Tensor]:
        means, variances, counts = _gather_stats(x, weight, processes.size())
        own = dist.get_rank() // processes.size()
        mean, count = means[own], counts[own]
        biased = variances[own] * (count - 1) / count
        ctx.save_for_backward(x, weight, mean, torch.rsqrt(biased + eps), count)
        ctx.processes = processes
        ctx.mark_non_differentiable(means, variances)
        return F.batch_norm(x, mean, biased, weight, bias, False, 0.0, eps), means, variances

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        grad: Tensor,
        *_: Tensor,
    ) -> tuple[Tensor | None, ...]:
        x, weight, mean, invstd, count = ctx.saved_tensors
        x_hat = (x - _per_channel(mean)) * _per_channel(invstd)
        clips_and_pixels = (0, 2, 3, 4)
        grad_bias = grad.sum(clips_and_pixels, dtype=mean.dtype)
        grad_weight = (grad * x_hat).sum(clips_and_pixels)
        # Parameters keep their local gradients, because DDP averages those. The losses of all processes of
        # the group reach x through the mean and the variance.
        shared = torch.stack([grad_bias, grad_weight])
        dist.all_reduce(shared, group=ctx.processes)
        through_mean, through_var = (_per_channel(part) for part in shared / count)
        grad_x = (grad - through_mean - x_hat * through_var) * _per_channel(weight * invstd)
        return grad_x.to(x.dtype), grad_weight, grad_bias, None, None


def _gather_stats(x: Tensor, like: Tensor, span: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return (groups, C) means and unbiased variances, and (groups, 1) numbers of values, of all processes.

    One collective serves the normalisation and the running statistics. Chan's formula combines means and variances
    without a difference of large squares. The statistics have the type of ``like``.
    """
    channels = x.shape[1]
    row = like.new_zeros(2 * channels + 1)
    row[-1] = x.numel() // channels
    F.batch_norm(x, row[:channels], row[channels:-1], training=True, momentum=1.0)
    rows = row.new_empty(dist.get_world_size(), len(row))
    dist.all_gather(list(rows.unbind()), row)
    groups = rows.view(-1, span, len(row))
    means, variances, counts = groups[..., :channels], groups[..., channels:-1], groups[..., -1:]
    total = counts.sum(1)
    mean = (counts * means).sum(1) / total
    squares = (counts - 1) * variances + counts * (means - mean[:, None]).square()
    return mean, squares.sum(1) / (total - 1), total


def _per_channel(values: Tensor) -> Tensor:
    """Reshape (C,) values so that they broadcast over (B, C, T, H, W)."""
    return values.view(-1, 1, 1, 1)
