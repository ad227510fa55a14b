"""Batch normalisation over a fixed number of clips, whatever the size of the mini-batch.

Coarse shapes come in mini-batches of up to 16 times the clips. BN still takes its statistics over
groups of 8 clips (paper, section 3; the released code's SubBatchNorm3d and NaiveSyncBatchNorm3d).
The long-cycle batch sets the number of groups of a phase, so the larger batches of the short cycle
have larger groups. Parameters, buffers and state_dict are those of ``nn.BatchNorm3d``. So
zero-init, the exemption from weight decay and checkpoints work as with plain BN in every phase.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class GroupStats(NamedTuple):
    """Statistics (groups, C) of groups of clips, in each of which a channel has ``num_values`` values."""

    means: Tensor
    variances: Tensor  # unbiased
    num_values: int

    def biased_variances(self) -> Tensor:
        """Return the mean square deviations within the groups: divided by n, not by n − 1."""
        return self.variances * ((self.num_values - 1) / self.num_values)


def folds(device: torch.device) -> bool:
    """Return whether a layer normalises all groups at once by torch's operators, and not one after the other."""
    # A compiler for a GPU needs minutes for many groups one after the other. Without one, all at once reads and
    # writes the clips about three times as often.
    return device.type != "cpu" and torch.compiler.is_compiling()


@functools.cache
def kernels() -> ModuleType | None:
    """Import the kernels for a GPU; return None, with a warning, if triton or its compiler is missing."""
    try:
        import triton

        from mgexp.multigrid import bn_kernels

        # This compiles what triton needs to start kernels on the current GPU.
        _ = triton.runtime.driver.active.utils
    except Exception as error:  # of the compiler, the linker or the driver
        warnings.warn(
            f"BN groups are normalised one by one, as triton fails: {error}", stacklevel=2
        )
        return None
    return bn_kernels


class GroupedBatchNorm3d(nn.BatchNorm3d):
    """``nn.BatchNorm3d`` that takes its training statistics over groups of clips (B, C, T, H, W).

    With ``num_groups`` n > 0, the clips of this process form n contiguous blocks of equal size.
    Each block is normalised by itself; n = 1 is ``nn.BatchNorm3d``, bit for bit. With n < 0, one
    group consists of the clips of −n consecutive processes, and every process must take part in
    each forward and backward pass. Evaluation is plain BN.

    Running statistics describe all groups as one sample. They are the moving averages of
    mean(mean_i) and of mean(var_i) + var(mean_i), with var_i unbiased as in ``nn.BatchNorm3d``.
    With n > 0 a forward pass uses the groups of this process alone, and ``share_statistics`` then
    adds those of the other processes. With n < 0 it uses the groups of all processes. If ``kept``
    is a list, the statistics of the groups are appended to it instead, and the running statistics
    stay as they are (see ``keeping``).

    With ``is_frozen``, training normalises with the running statistics and leaves them as they are.

    Raises ValueError in training if the clips do not divide into the groups.
    """

    num_groups = 1
    kept: list[GroupStats] | None = None
    is_frozen = False
    kernel_from = 2
    """The number of groups from which a GPU takes our kernels, which take as long for any number of groups.

    For one group, Python needs longer to start them than torch's own. In a CUDA graph that costs nothing.
    """
    relu = False
    """Whether the layer computes the ReLU behind it too (`fuse_norms`)."""
    ends_branch = False
    """Whether forward leaves the clips to `finish`, which gets the shortcut of the block too."""

    def train(self, mode: bool = True) -> GroupedBatchNorm3d:
        # Each step calls train() on the whole model, which must not wake a frozen layer.
        return super().train(mode and not self.is_frozen)

    def forward(self, x: Tensor) -> Tensor:
        return x if self.ends_branch else self.finish(None, x)

    def finish(self, shortcut: Tensor | None, x: Tensor) -> Tensor:
        """Normalise clips ``x`` (B, C, T, H, W), add a ``shortcut`` of their shape, and apply the layer's ReLU.

        The order of the arguments is that of ``branch_fusion`` of pytorchvideo's blocks.
        """
        if self.training and self._has_kernel(x):
            self._check_groups(x)
            return self._normalize_by_kernel(shortcut, x)
        out = self._normalize(x)
        if shortcut is not None:
            out = shortcut + out
        return F.relu(out) if self.relu else out

    def _normalize(self, x: Tensor) -> Tensor:
        if not self.training or (self.num_groups == 1 and self.kept is None):
            return super().forward(x)
        self._check_groups(x)
        if self.num_groups > 0:
            out, means, variances = self._normalize_blocks(x)
        else:
            out, means, variances = self._normalize_part(x)
        self._record(x, means, variances)
        return out

    def _check_groups(self, x: Tensor) -> None:
        self._check_input_dim(x)
        groups = self.num_groups
        if groups > 0 and len(x) % groups:
            raise ValueError(f"{len(x)} clips do not divide into {groups} BN groups of equal size")
        # The unbiased variance divides by the number of values minus 1.
        if x.numel() == x.shape[1] * groups:
            raise ValueError(f"each BN group has one value per channel: {tuple(x.shape)}")

    def _has_kernel(self, x: Tensor) -> bool:
        return (
            x.is_cuda
            and self.num_groups >= self.kernel_from
            and self.weight.dtype == torch.float32
            # A compiler fuses torch's own operators, and cannot look into a kernel.
            and not torch.compiler.is_compiling()
            and (module := kernels()) is not None
            and bool(module.takes(x))
        )

    def _normalize_by_kernel(self, shortcut: Tensor | None, x: Tensor) -> Tensor:
        module = kernels()
        assert module is not None
        assert self.num_batches_tracked is not None
        is_tracked = self.kept is None and self.momentum is not None
        out: Tensor
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
            out, statistics = module.KernelNorm.apply(
                x,
                shortcut,
                self.weight,
                self.bias,
                self.running_mean,
                self.running_var,
                self.num_groups,
                self.eps,
                self.momentum if is_tracked else None,
                self.relu,
            )
        if is_tracked:
            self.num_batches_tracked.add_(1)
        else:
            self._record(x, statistics[0], statistics[1])
        return out

    def _record(self, x: Tensor, means: Tensor, variances: Tensor) -> None:
        """Keep the (groups, C) statistics of ``x``, or move the running statistics towards them."""
        if self.kept is not None:
            # A group has a part of the values of this process, or those of several processes.
            own = x.numel() // x.shape[1]
            num_values = own * max(1, -self.num_groups) // max(1, self.num_groups)
            self.kept.append(GroupStats(means, variances, num_values))
        else:
            self.track(means, variances)

    def _normalize_blocks(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Normalise each block; return the clips, and (groups, C) means and unbiased variances."""
        groups = self.num_groups
        if folds(x.device):
            with torch.no_grad():
                # BlockNorm has the gradient through the statistics, so autograd need not record them here.
                values = _blocks(x, groups).to(self.weight.dtype)
                biased, means = torch.var_mean(values, OVER_BLOCK, correction=0)
            # A tensor, since the backward pass of BlockNorm takes it from the saved tensors.
            num_values = means.new_full((), x.numel() // means.numel())
            out = BlockNorm.apply(
                x, self.weight, self.bias, means, biased, num_values, self.eps, None
            )
            return out, means, biased * (num_values / (num_values - 1))
        # A block of the batch is dense in either memory format, so only ``cat`` copies clips. With
        # a momentum of 1, batch_norm writes the block's own statistics into ``mean`` and ``var``.
        # These begin as zeros, because it still multiplies the old values by 0, and in empty memory
        # a NaN would stay a NaN.
        stats = self.weight.new_zeros(2, groups, self.num_features)
        blocks = [
            F.batch_norm(block, mean, var, self.weight, self.bias, True, 1.0, self.eps)
            for block, mean, var in zip(x.chunk(groups), *stats.unbind(), strict=True)
        ]
        return torch.cat(blocks), stats[0], stats[1]

    def _normalize_part(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Normalise this process's part of a group; return its clips, and the statistics of all groups."""
        processes = span_group(-self.num_groups)
        with torch.no_grad():
            means, variances, counts = _gather_stats(x, self.weight, processes.size())
        # Groups are consecutive processes, so the number of a group follows from the rank.
        own = dist.get_rank() // processes.size()
        mean, count = means[own], counts[own]
        biased = variances[own] * (count - 1) / count
        out = BlockNorm.apply(
            x, self.weight, self.bias, mean[None], biased[None], count, self.eps, processes
        )
        return out, means, variances

    @torch.no_grad()
    def track(self, means: Tensor, variances: Tensor) -> None:
        """Move the running statistics towards those of the (groups, C) means and unbiased variances."""
        assert self.running_mean is not None and self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = self.momentum
        # None asks for a cumulative average, as in nn.BatchNorm3d.
        if momentum is None:
            momentum = 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(means.mean(0), momentum)
        # The variance of all clips is that within the groups plus that of their means. Plain BN sees both, and
        # evaluation normalises clips of all groups by one statistic.
        self.running_var.lerp_(variances.mean(0) + means.var(0, correction=0), momentum)


class GroupedBatchNorm2d(GroupedBatchNorm3d):
    """``nn.BatchNorm2d`` over groups of clips whose frames lie in the batch: (B·T, C, H, W).

    The T frames of a clip must follow each other, as ``clips.flatten(0, 1)`` of (B, T, C, H, W) gives them. So a
    block of frames is a block of clips.
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 4:
            raise ValueError(f"expected 4D input (got {x.dim()}D input)")
        return super().forward(x.unsqueeze(2)).squeeze(2)


GROUPED: dict[type[nn.Module], type[GroupedBatchNorm3d]] = {
    nn.BatchNorm3d: GroupedBatchNorm3d,
    nn.BatchNorm2d: GroupedBatchNorm2d,
}
"""The layers that ``group_batchnorm`` changes, and what they become."""


@contextmanager
def keeping(model: nn.Module) -> Iterator[list[GroupedBatchNorm3d]]:
    """Keep the statistics of all groups of the training passes in the block; yield the layers.

    Each layer holds its statistics in ``kept``. The running statistics do not move. The block may
    lie in another one, which keeps nothing of it: training passes that are computed a second time.
    """
    layers = grouped_layers(model)
    before = [layer.kept for layer in layers]
    for layer in layers:
        layer.kept = []
    try:
        yield layers
    finally:
        for layer, kept in zip(layers, before, strict=True):
            layer.kept = kept
            # A graph that was compiled before the block holds for layers without the attribute.
            if kept is None:
                del layer.kept


@contextmanager
def one_sample(model: nn.Module) -> Iterator[None]:
    """Count the mini-batches that are trained in the block as one.

    The running statistics move once, at the end of the block, unless it lies in a block of ``keeping``.
    """
    with keeping(model) as layers:
        yield
        # Read inside the block: at its end, `keeping` puts back the lists from before.
        samples = [layer.kept or [] for layer in layers]
    # This comes after the last mini-batch, so an error in the block leaves the running statistics
    # unchanged.
    for layer, kept in zip(layers, samples, strict=True):
        if kept and layer.kept is None:
            means, variances, _ = zip(*kept, strict=True)
            layer.track(torch.cat(means), torch.cat(variances))


@torch.no_grad()
def share_statistics(model: nn.Module, momentum: float | None = None) -> None:
    """Give all processes the same running statistics: those of all groups of the global mini-batch.

    Every process must call this after each step. All must have moved their statistics once, from
    the same values and by the same number of groups. ``momentum`` is the momentum m of the layers.
    Give 1 if the statistics are those of the clips themselves and not moving averages. The whole
    model needs two collectives, and the CPU does not wait for a GPU. A single process does nothing.
    Raises ValueError for layers without momentum, or with different ones.
    """
    layers = grouped_layers(model)
    num_processes = num_running()
    if num_processes <= 1 or not layers:
        return
    if momentum is None:
        momentum, *others = {layer.momentum for layer in layers}
        if others or not momentum:
            given = ", ".join(str(value) for value in (momentum, *others))
            raise ValueError(f"statistics can be shared at one momentum above 0, not at {given}")
    # All layers are concatenated, so the model needs one collective for the means and one for the
    # variances, not one for each layer.
    names = ("running_mean", "running_var")
    means, variances = ([getattr(layer, name) for layer in layers] for name in names)
    own = torch.cat(means)
    mean = own.clone()
    dist.all_reduce(mean)
    # A sum and a division, because gloo has no collective for means.
    mean /= num_processes
    # Process p has μ_p = (1 − m)·μ + m·mean_p. The mean of all μ_p is the value to which the mean of all groups
    # moves μ. The same holds for the variances, but the variance of mean_p between processes must be added,
    # with the weight m, like var_p. It is the variance of μ_p divided by m², so we divide by m once.
    variance = torch.cat(variances) + (own - mean).square() / momentum
    dist.all_reduce(variance)
    variance /= num_processes
    sizes = [len(part) for part in means]
    # In place: the buffers must stay the tensors that checkpoints and CUDA graphs know.
    torch._foreach_copy_(means, mean.split_with_sizes(sizes))
    torch._foreach_copy_(variances, variance.split_with_sizes(sizes))


def grouped_layers(model: nn.Module) -> list[GroupedBatchNorm3d]:
    """Return the layers of ``model`` that take statistics over groups: those that are not frozen."""
    return [
        module
        for module in model.modules()
        if isinstance(module, GroupedBatchNorm3d) and not module.is_frozen
    ]


def group_batchnorm(model: nn.Module) -> nn.Module:
    """Make every ``nn.BatchNorm3d`` and ``nn.BatchNorm2d`` in ``model`` a grouped layer; return the model.

    Parameters, buffers and hooks stay, so an existing optimizer keeps working. Raises ValueError for a layer
    without scale and shift, or without running statistics.
    """
    for layer in model.modules():
        # A subclass of nn.BatchNorm3d may compute something else, so it stays.
        if type(layer) in GROUPED:
            if not (layer.affine and layer.track_running_stats):
                raise ValueError(
                    f"{layer}: grouped statistics need affine=True and track_running_stats=True"
                )
            # The class alone decides what forward computes.
            layer.__class__ = GROUPED[type(layer)]
    return model


OTHER_KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
"""A layer that is one of these or derives from one takes statistics over clips."""


def set_num_groups(model: nn.Module, num_groups: int) -> None:
    """Set the BN groups per process of the whole model: n > 0, or −n for one group that spans n processes.

    With −n every process must call this with the same n, because it makes the process groups, once
    for each n. Raises ValueError if n processes cannot share a group, or if the model has batch norm that takes
    no groups.
    """
    # One group of one process is 1. With −1 the layer would gather statistics from itself.
    if num_groups in (0, -1):
        raise ValueError(f"num_groups is {num_groups}: not a number of BN groups; one group is 1")
    if num_groups < 0:
        span_group(-num_groups)
    layers = grouped_layers(model)
    if (
        num_groups != 1
        and not layers
        and any(
            isinstance(module, OTHER_KINDS) and not isinstance(module, GroupedBatchNorm3d)
            for module in model.modules()
        )
    ):
        raise ValueError(
            "the model has batch norm without groups: call group_batchnorm(model) before, and no "
            "convert_sync_batchnorm"
        )
    for layer in layers:
        layer.num_groups = num_groups


def num_running() -> int:
    """Count the processes that torch.distributed runs; 0 if it runs none."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 0


def span_group(span: int) -> dist.ProcessGroup:
    """Return the group of ``span`` consecutive processes that this process belongs to."""
    # We look the group up by its size. If a layer held its ProcessGroup, the model could not be
    # copied.
    world = max(1, num_running())
    if world % span:
        raise ValueError(
            f"a BN group cannot span {span} processes: there are {world}; "
            "start a multiple of that number under torch.distributed, or give each process more clips"
        )
    return _make_span_group(dist.group.WORLD, span)


@functools.cache
def _make_span_group(_world: dist.ProcessGroup, span: int) -> dist.ProcessGroup:
    # ``_world`` is only a key of the cache. After a new init_process_group the old groups are of no
    # use.
    own, _ = dist.new_subgroups(group_size=span)
    return own


class BlockNorm(torch.autograd.Function):
    """Normalise n equal blocks of clips (B, C, T, H, W). The number of operators does not grow with n.

    ``mean`` and ``variance`` are the statistics of the blocks, (n, C) and biased. The gradient of x contains what
    flows through them, so they get none. A block may be this process's part of a group. Then ``processes`` are
    those of the group, and all of them must take part in the backward pass. In a group, a channel has
    ``num_values`` values.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - the stubs of its own class do not know attributes set on it
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        variance: Tensor,
        num_values: Tensor,
        eps: float,
        processes: dist.ProcessGroup | None,
    ) -> Tensor:
        invstd = torch.rsqrt(variance + eps)
        ctx.save_for_backward(x, weight, mean, invstd, num_values)
        ctx.processes = processes
        # With one block this is plain BN by given statistics, for which torch has one fast operator.
        if len(mean) == 1:
            return F.batch_norm(x, mean[0], variance[0], weight, bias, False, 0.0, eps)
        # One product and one sum per value. (x − mean) · scale would write another tensor of the size of the
        # clips.
        scale = weight * invstd
        shift = bias - mean * scale
        out = torch.addcmul(_per_block(shift), _blocks(x, len(mean)), _per_block(scale))
        return out.flatten(0, 1).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, weight, mean, invstd, num_values = ctx.saved_tensors
        grads = _blocks(grad, len(mean))
        x_hat = (_blocks(x, len(mean)) - _per_block(mean)) * _per_block(invstd)
        # The gradients may be bf16, of which the sum of millions needs more digits than it has.
        grad_bias = grads.sum(OVER_BLOCK, dtype=mean.dtype)
        grad_weight = (grads * x_hat).sum(OVER_BLOCK)
        # Weight and bias keep the gradients of this process, because DDP averages them. The
        # gradient of x also has the losses of the group's other processes, which depend on x
        # through the mean and the variance.
        shared = torch.stack([grad_bias, grad_weight])
        if ctx.processes:
            dist.all_reduce(shared, group=ctx.processes)
        through_mean, through_var = (_per_block(part) for part in shared / num_values)
        grad_x = (grads - through_mean - x_hat * through_var) * _per_block(weight * invstd)
        grad_x = grad_x.flatten(0, 1).to(x.dtype)
        return grad_x, grad_weight.sum(0), grad_bias.sum(0), None, None, None, None, None


OVER_BLOCK = (1, 3, 4, 5)
"""The axes of `_blocks` over which the values of a channel lie."""


def _blocks(x: Tensor, num_blocks: int) -> Tensor:
    """View (B, C, T, H, W) as (blocks, clips of a block, C, T, H, W), in any memory format."""
    return x.view(num_blocks, -1, *x.shape[1:])


def _per_block(values: Tensor) -> Tensor:
    """Reshape (blocks, C) values so that they broadcast over `_blocks`."""
    return values.view(len(values), 1, -1, 1, 1, 1)


def _gather_stats(x: Tensor, like: Tensor, span: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return (groups, C) means and unbiased variances, and (groups, 1) numbers of values, of all processes.

    One collective serves the normalisation and the running statistics, which have the type of ``like``.
    """
    channels = x.shape[1]
    # With a momentum of 1, batch_norm writes the mean and the unbiased variance of x into the row.
    row = like.new_zeros(2 * channels + 1)
    # The count travels beside the sums, in the same collective. Beyond 2^24 values float32 rounds it, by less
    # than 1e-7 of it, which changes a mean or variance by no more than its own rounding.
    row[-1] = x.numel() // channels
    F.batch_norm(x, row[:channels], row[channels:-1], training=True, momentum=1.0)
    rows = row.new_empty(dist.get_world_size(), len(row))
    dist.all_gather(list(rows.unbind()), row)
    groups = rows.view(-1, span, len(row))
    means, variances, counts = groups[..., :channels], groups[..., channels:-1], groups[..., -1:]
    # Chan's formula combines means and variances without a difference of large squares.
    total = counts.sum(1)
    mean = (counts * means).sum(1) / total
    squares = (counts - 1) * variances + counts * (means - mean[:, None]).square()
    return mean, squares.sum(1) / (total - 1), total
