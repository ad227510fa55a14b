"""Batch norm over groups of clips on a GPU: as many kernels for any number of groups.

Clips (B, C, T, H, W) in channels_last_3d are rows (B·T·H·W, C) without a copy, and a group is a run of rows. A
program takes a part of the rows of a group and a block of channels. Sums are in float32 and have a fixed order, so
each run gives the same bits. A ReLU may follow, also after a sum with a shortcut, for which the clips are not read
and written again. benchmarks/h100.md has what such kernels took on an H100.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.language import constexpr

NUM_PROGRAMS = 528
"""How many programs share the rows: four for each multiprocessor of an H100."""
TILE = 4096
"""How many values a program holds at once."""
PARTS = 16
"""How many partial sums a program reads at once."""
ALIGNED = 8
"""The kernels get an eighth of the channels. So the compiler knows that rows begin at multiples of 16 bytes, and
loads as many at once."""


def takes(x: Tensor) -> bool:
    """Return whether the kernels can normalise the clips ``x``."""
    return x.dtype in {torch.float32, torch.bfloat16, torch.float16} and x.shape[1] % ALIGNED == 0


@triton.jit
def _merged(n, mean, squares, n_more, mean_more, squares_more):
    """Combine two samples by their numbers, means and sums of squared deviations (Chan's formula)."""
    total = n + n_more
    delta = mean_more - mean
    share = n_more / total
    return total, mean + delta * share, squares + squares_more + delta * delta * (n * share)


@triton.jit
def _own_part(num_rows, channels, part, COLUMNS: constexpr):
    """Return its channels, the first row of its group, and from where to where it goes in the group."""
    c = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    # Places are counted in 64 bits, because clips of a mini-batch may have more than 2^31 values.
    first = tl.program_id(1) * part
    return c, tl.program_id(0).to(tl.int64) * num_rows, first, tl.minimum(first + part, num_rows)


@triton.jit
def _tile(origin, start, end, c, channels, ROWS: constexpr):
    """Return where the values of a tile lie, and which of them belong to it."""
    r = start + tl.arange(0, ROWS)
    is_in = (r[:, None] < end) & (c[None, :] < channels)
    return (origin + r[:, None]) * channels + c[None, :], is_in


@triton.jit
def _store_part(parts, first, second, c, channels):
    """Store both sums of this program's rows in ``parts`` (2, groups, parts, C)."""
    own = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * channels + c
    size = tl.num_programs(0) * tl.num_programs(1) * channels
    tl.store(parts + own, first, mask=c < channels)
    tl.store(parts + size + own, second, mask=c < channels)


@triton.jit
def _sum_up(x, parts, num_rows, eighths, part, ROWS: constexpr, COLUMNS: constexpr):
    """Store the mean and the squared deviations of each part of the rows of a group."""
    channels = eighths * 8
    c, origin, first, end = _own_part(num_rows, channels, part, COLUMNS)
    n = tl.zeros((), tl.float32)
    mean = tl.zeros((COLUMNS,), tl.float32)
    square = tl.zeros((COLUMNS,), tl.float32)
    for start in range(first, end, ROWS):
        at, is_in = _tile(origin, start, end, c, channels, ROWS)
        values = tl.load(x + at, mask=is_in, other=0.0).to(tl.float32)
        count = tl.minimum(end - start, ROWS).to(tl.float32)
        # Mean first, then deviations from it. A difference of large sums of squares would lose digits in
        # float32.
        tile_mean = tl.sum(values, 0) / count
        # Places outside the tile were loaded as 0, which is a deviation from the mean.
        deviations = tl.where(is_in, values - tile_mean[None, :], 0.0)
        tile_square = tl.sum(deviations * deviations, 0)
        n, mean, square = _merged(n, mean, square, count, tile_mean, tile_square)
    _store_part(parts, mean, square, c, channels)


@triton.jit
def _combine(
    parts,
    statistics,
    running_mean,
    running_var,
    num_groups,
    num_parts,
    num_rows,
    eighths,
    part,
    eps,
    momentum,
    TRACK: constexpr,
    PARTS: constexpr,
    COLUMNS: constexpr,
):
    """Store mean, unbiased variance and 1/σ of each group, and move the running statistics if ``TRACK``."""
    channels = eighths * 8
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    is_channel = c < channels
    size = num_groups * channels
    seen = tl.zeros((), tl.float32)
    mean_of_means = tl.zeros((COLUMNS,), tl.float32)
    squares_of_means = tl.zeros((COLUMNS,), tl.float32)
    mean_of_vars = tl.zeros((COLUMNS,), tl.float32)
    for group in range(num_groups):
        n = tl.zeros((), tl.float32)
        mean = tl.zeros((COLUMNS,), tl.float32)
        square = tl.zeros((COLUMNS,), tl.float32)
        # Parts are read in tiles: one after the other they took 6.5 ms of a step in place of 0.8.
        for start in range(0, num_parts, PARTS):
            p = start + tl.arange(0, PARTS)
            at, is_in = _tile(group * num_parts, start, num_parts, c, channels, PARTS)
            means = tl.load(parts + at, mask=is_in, other=0.0)
            squares = tl.load(parts + num_parts * size + at, mask=is_in, other=0.0)
            # The last part of a group may be shorter than the others, and the places behind it are empty.
            counts = tl.maximum(tl.minimum(num_rows - p * part, part), 0).to(tl.float32)
            count = tl.sum(counts, 0)
            tile_mean = tl.sum(counts[:, None] * means, 0) / count
            deviations = means - tile_mean[None, :]
            tile_square = tl.sum(squares + counts[:, None] * deviations * deviations, 0)
            n, mean, square = _merged(n, mean, square, count, tile_mean, tile_square)
        variance = square / (num_rows - 1)
        own = statistics + group * channels + c
        tl.store(own, mean, mask=is_channel)
        tl.store(own + size, variance, mask=is_channel)
        tl.store(own + 2 * size, 1.0 / tl.sqrt(square / num_rows + eps), mask=is_channel)
        seen, mean_of_means, squares_of_means = _merged(
            seen, mean_of_means, squares_of_means, 1.0, mean, 0.0
        )
        mean_of_vars += (variance - mean_of_vars) / seen
    if TRACK:
        old = tl.load(running_mean + c, mask=is_channel, other=0.0)
        tl.store(running_mean + c, old + momentum * (mean_of_means - old), mask=is_channel)
        old = tl.load(running_var + c, mask=is_channel, other=0.0)
        # As in `GroupedBatchNorm3d.track`: the variance of the means is divided by n, not by n − 1.
        new = mean_of_vars + squares_of_means / num_groups
        tl.store(running_var + c, old + momentum * (new - old), mask=is_channel)


@triton.jit
def _of_group(values, kind, c, channels):
    """Load the values of a kind of this program's group, of (kinds, groups, C)."""
    row = kind * tl.num_programs(0) + tl.program_id(0)
    return tl.load(values + row * channels + c, mask=c < channels, other=0.0)


@triton.jit
def _normalize(
    x, shortcut, out, statistics, weight, bias, num_rows, eighths, part,
    RELU: constexpr, ADDS: constexpr, ROWS: constexpr, COLUMNS: constexpr,
):  # fmt: skip
    """Store the normalised clips, or the ReLU of them or of their sum with the shortcut."""
    channels = eighths * 8
    c, origin, first, end = _own_part(num_rows, channels, part, COLUMNS)
    mean = _of_group(statistics, 0, c, channels)
    scale = tl.load(weight + c, mask=c < channels, other=0.0)
    scale *= _of_group(statistics, 2, c, channels)
    shift = tl.load(bias + c, mask=c < channels, other=0.0)
    for start in range(first, end, ROWS):
        at, is_in = _tile(origin, start, end, c, channels, ROWS)
        values = tl.load(x + at, mask=is_in, other=0.0).to(tl.float32)
        # In registers the difference costs no memory, and unlike x · scale + shift it keeps its digits where
        # the mean is large against σ.
        values = (values - mean[None, :]) * scale[None, :] + shift[None, :]
        if ADDS:
            values += tl.load(shortcut + at, mask=is_in, other=0.0).to(tl.float32)
        if RELU:
            # Unlike a maximum, this keeps NaN, at which a training stops.
            values = tl.where(values < 0, 0.0, values)
        tl.store(out + at, values.to(out.dtype.element_ty), mask=is_in)


@triton.jit
def _sum_up_gradients(
    grad, x, shortcut, through_relu, statistics, weight, bias, parts, num_rows, eighths, part,
    RELU: constexpr, ADDS: constexpr, ROWS: constexpr, COLUMNS: constexpr,
):  # fmt: skip
    """Store the sums of the gradient, and of the gradient times the normalised value, of each part.

    With a shortcut, also store the gradient before the ReLU, which is that of the shortcut.
    """
    channels = eighths * 8
    c, origin, first, end = _own_part(num_rows, channels, part, COLUMNS)
    mean = _of_group(statistics, 0, c, channels)
    inverse = _of_group(statistics, 2, c, channels)
    scale = tl.load(weight + c, mask=c < channels, other=0.0) * inverse
    shift = tl.load(bias + c, mask=c < channels, other=0.0)
    bias_grad = tl.zeros((COLUMNS,), tl.float32)
    weight_grad = tl.zeros((COLUMNS,), tl.float32)
    for start in range(first, end, ROWS):
        at, is_in = _tile(origin, start, end, c, channels, ROWS)
        grads = tl.load(grad + at, mask=is_in, other=0.0).to(tl.float32)
        values = tl.load(x + at, mask=is_in, other=0.0).to(tl.float32) - mean[None, :]
        if RELU:
            shown = values * scale[None, :] + shift[None, :]
            if ADDS:
                shown += tl.load(shortcut + at, mask=is_in, other=0.0).to(tl.float32)
            grads = tl.where(shown <= 0, 0.0, grads)
            if ADDS:
                tl.store(through_relu + at, grads.to(through_relu.dtype.element_ty), mask=is_in)
        bias_grad += tl.sum(grads, 0)
        weight_grad += tl.sum(grads * values * inverse[None, :], 0)
    _store_part(parts, bias_grad, weight_grad, c, channels)


@triton.jit
def _differentiate(
    grad, x, out, statistics, weight, bias, sums, num_rows, eighths, part,
    RELU: constexpr, ROWS: constexpr, COLUMNS: constexpr,
):  # fmt: skip
    """Store the gradient of the clips."""
    channels = eighths * 8
    c, origin, first, end = _own_part(num_rows, channels, part, COLUMNS)
    mean = _of_group(statistics, 0, c, channels)
    inverse = _of_group(statistics, 2, c, channels)
    scale = tl.load(weight + c, mask=c < channels, other=0.0) * inverse
    shift = tl.load(bias + c, mask=c < channels, other=0.0)
    through_mean = _of_group(sums, 0, c, channels) / num_rows
    through_var = _of_group(sums, 1, c, channels) / num_rows * inverse
    for start in range(first, end, ROWS):
        at, is_in = _tile(origin, start, end, c, channels, ROWS)
        grads = tl.load(grad + at, mask=is_in, other=0.0).to(tl.float32)
        values = tl.load(x + at, mask=is_in, other=0.0).to(tl.float32) - mean[None, :]
        if RELU:
            grads = tl.where(values * scale[None, :] + shift[None, :] <= 0, 0.0, grads)
        grads = (grads - through_mean[None, :] - values * through_var[None, :]) * scale[None, :]
        tl.store(out + at, grads.to(out.dtype.element_ty), mask=is_in)


class KernelNorm(torch.autograd.Function):
    """Normalise ``num_groups`` equal groups of clips (B, C, T, H, W); return the clips and the statistics.

    ``relu`` sets negative values to 0, after a ``shortcut`` of the same shape is added if it is given.
    The statistics are (3, groups, C): means, unbiased variances and 1/σ; they have no gradient. With ``momentum``,
    the running statistics move as in `GroupedBatchNorm3d.track`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        shortcut: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        num_groups: int,
        eps: float,
        momentum: float | None,
        relu: bool,
    ) -> tuple[Tensor, Tensor]:
        assert shortcut is None or (relu and shortcut.shape == x.shape)
        x = x.contiguous(memory_format=torch.channels_last_3d)
        if shortcut is not None:
            shortcut = shortcut.contiguous(memory_format=torch.channels_last_3d)
        channels = x.shape[1]
        grid, sizes, tile = _grid(x, num_groups)
        parts = weight.new_empty(2, num_groups, grid[1], channels)
        statistics = weight.new_empty(3, num_groups, channels)
        out = torch.empty_like(x)
        _sum_up[grid](x, parts, *sizes, **tile)
        running = (running_mean, running_var)
        numbers = (num_groups, grid[1], *sizes, eps, momentum or 0.0, momentum is not None)
        _combine[grid[2:]](parts, statistics, *running, *numbers, PARTS, tile["COLUMNS"])
        adds = shortcut is not None
        of_channels = (statistics, weight, bias)
        _normalize[grid](x, shortcut if adds else x, out, *of_channels, *sizes, relu, adds, **tile)
        ctx.save_for_backward(x, shortcut, *of_channels)
        ctx.relu = relu
        # The gradient of x below already has what flows through the statistics.
        ctx.mark_non_differentiable(statistics)
        return out, statistics

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        x, shortcut, *of_channels = ctx.saved_tensors
        statistics, weight, _ = of_channels
        relu, adds = ctx.relu, shortcut is not None
        grad = grad.contiguous(memory_format=torch.channels_last_3d)
        num_groups, channels = statistics.shape[1:]
        grid, sizes, tile = _grid(x, num_groups)
        parts = weight.new_empty(2, num_groups, grid[1], channels)
        out = torch.empty_like(x)
        through_relu = torch.empty_like(shortcut) if adds else grad
        clips = (grad, x, shortcut if adds else x, through_relu)
        own_tile = smaller(tile, adds)
        _sum_up_gradients[grid](*clips, *of_channels, parts, *sizes, relu, adds, **own_tile)
        sums = parts.sum(2)
        # With a shortcut, the gradient has gone through the ReLU already.
        masks = relu and not adds
        _differentiate[grid](through_relu, x, out, *of_channels, sums, *sizes, masks, **tile)
        bias_grad, weight_grad = sums.sum(1).unbind()
        shortcut_grad = through_relu if adds else None
        return out, shortcut_grad, weight_grad, bias_grad, None, None, None, None, None, None


def smaller(tile: dict[str, int], adds: bool) -> dict[str, int]:
    """Halve the rows of a tile for a kernel that reads a shortcut too, or it would need too many registers."""
    return tile | {"ROWS": tile["ROWS"] // 2} if adds else tile


def _grid(x: Tensor, num_groups: int) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, int]]:
    """Share clips among programs: (groups, parts, blocks of channels); sizes that the kernels need; a tile."""
    channels = x.shape[1]
    num_rows = x.numel() // channels // num_groups
    columns = min(max(triton.next_power_of_2(channels), 16), 64)
    rows = TILE // columns
    blocks = triton.cdiv(channels, columns)
    num_parts = max(1, NUM_PROGRAMS // (num_groups * blocks))
    # Whole tiles, so that only the last part of a group ends with an incomplete one.
    part = triton.cdiv(triton.cdiv(num_rows, num_parts), rows) * rows
    sizes = (num_rows, channels // ALIGNED, part)
    grid = (num_groups, triton.cdiv(num_rows, part), blocks)
    return grid, sizes, {"ROWS": rows, "COLUMNS": columns}
