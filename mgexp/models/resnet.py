"""The ResNets that pytorchvideo builds, for clips of every shape.

I3D, C2D, Slow and TSM are one ResNet with four ways to use the time axis. Non-local blocks (Wang et al., CVPR
2018) may be inserted between its residual blocks. SlowFast (Feichtenhofer et al., ICCV 2019) has two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from mgexp.multigrid.batchnorm import GroupedBatchNorm3d

SHARE = 8
"""The temporal shift takes 1 of this many channels from the next frame and 1 from the frame before
(Lin et al., ICCV 2019, section 3)."""


def temporal_shift(x: Tensor) -> Tensor:
    """Move 2/8 of the channels of clips (B, C, T, H, W) by one frame.

    Shape and memory format stay the same. In the first C/8 channels, frame t of the result is frame
    t + 1 of the input. In the next C/8 channels it is frame t − 1. If the clip has no such frame,
    the values are zeros. The other channels stay.

        T = 4        0 1 2 3          (numbers: frames of the input)
        C/8 ahead    1 2 3 0s
        C/8 behind   0s 0 1 2
        the rest     0 1 2 3
    """
    share = x.shape[1] // SHARE
    # zeros_like also takes over the memory format of ``x``.
    shifted = torch.zeros_like(x)
    shifted[:, :share, :-1] = x[:, :share, 1:]
    shifted[:, share : 2 * share, 1:] = x[:, share : 2 * share, :-1]
    shifted[:, 2 * share :] = x[:, 2 * share :]
    return shifted


class ShiftConv3d(nn.Conv3d):
    """Convolution of temporally shifted channels. If ``shifts`` is False, it is an nn.Conv3d."""

    shifts = True

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(temporal_shift(x) if self.shifts else x)


MANY_BLOCKS = 23
"""With so many blocks in a stage, as in a ResNet of depth 101, every second block of TSM shifts."""


@dataclass(frozen=True)
class Temporal:
    """Temporal structure of a ResNet. Kernel sizes are in frames.

    ``stem`` is the kernel of the first convolution. ``blocks`` has, for each stage, the kernels of
    the first convolution of its blocks; they repeat over the blocks. With ``pools`` two frames
    become one after the first stage. With ``shifts`` channels move between frames, and kernels need
    not be wider (TSM).
    """

    stem: int
    blocks: tuple[tuple[int, ...], ...]
    pools: bool
    shifts: bool = False


TEMPORAL = {
    # Source: PySlowFast 287ec00, video_model_builder.py, _TEMPORAL_KERNEL_BASIS and _POOL1.
    "I3D": Temporal(5, ((3,), (3, 1), (3, 1), (1, 3)), pools=True),
    "C2D": Temporal(1, ((1,), (1,), (1,), (1,)), pools=True),
    "Slow": Temporal(1, ((1,), (1,), (3,), (3,)), pools=False),
    # Source: Lin et al., ICCV 2019, section 4: a ResNet on single frames, with shifts.
    "TSM": Temporal(1, ((1,), (1,), (1,), (1,)), pools=False, shifts=True),
}
"""The networks by name. I3D: Carreira and Zisserman, CVPR 2017, as a ResNet. C2D: Wang et al., CVPR 2018.
Slow: the slow pathway of Feichtenhofer et al., ICCV 2019. TSM: Lin et al., ICCV 2019."""


def resnet(
    temporal: Temporal,
    *,
    num_classes: int,
    depth: int,
    width: int = 64,
    dropout: float,
) -> nn.Module:
    """Build a network that turns float clips (B, 3, T, S, S) into logits (B, num_classes).

    ``depth`` is 50 or 101, and ``width`` is the number of channels of the stem. If ``temporal``
    pools, T must be 2 or more. The head averages over any number of frames and pixels, so a test on
    larger crops is fully convolutional. The network returns logits in training and in evaluation.
    The keys of the state_dict are pytorchvideo's own.
    """
    from pytorchvideo.models.resnet import create_bottleneck_block, create_resnet

    # The shift is inside the residual branch, so the shortcut keeps all channels of each frame. Lin
    # et al. call this the residual shift.
    def shifted(**arguments: Any) -> nn.Module:  # noqa: ANN401 - whatever pytorchvideo passes on
        block: nn.Module = create_bottleneck_block(**{**arguments, "conv_a": ShiftConv3d})
        return block

    model: nn.Module = create_resnet(
        model_depth=depth,
        model_num_class=num_classes,
        dropout_rate=dropout,
        stem_dim_out=width,
        stem_conv_kernel_size=(temporal.stem, 7, 7),
        stage1_pool=nn.MaxPool3d if temporal.pools else None,
        stage_conv_a_kernel_size=[[(t, 1, 1) for t in stage] for stage in temporal.blocks],
        bottleneck=shifted if temporal.shifts else create_bottleneck_block,
        # The default pool has a fixed size, which fits a single shape.
        head_pool=nn.AdaptiveAvgPool3d,
    )
    if temporal.shifts:
        blocks: Any = model.blocks
        stages = [block.res_blocks for block in blocks if hasattr(block, "res_blocks")]
        # Source: released code of TSM, make_temporal_shift: in deep networks every second block shifts.
        if any(len(stage) >= MANY_BLOCKS for stage in stages):
            for block in chain.from_iterable(stage[1::2] for stage in stages):
                block.branch2.conv_a.shifts = False
    return model


class NonLocalStage(nn.Module):
    """Residual stage with a non-local block after some of its blocks.

    The shape (B, C, T, H, W) stays the same. The keys of the residual blocks stay as they were.
    Those of the non-local blocks are nonlocals.<block>.….
    """

    def __init__(self, res_blocks: nn.ModuleList, nonlocals: Mapping[int, nn.Module]) -> None:
        super().__init__()
        self.res_blocks = res_blocks
        self.nonlocals = nn.ModuleDict({str(block): nonlocals[block] for block in nonlocals})

    def forward(self, x: Tensor) -> Tensor:
        for number, res_block in enumerate(self.res_blocks):
            x = res_block(x)
            if str(number) in self.nonlocals:
                x = self.nonlocals[str(number)](x)
        return x


def insert_nonlocals(
    model: nn.Module,
    *,
    places: Sequence[Sequence[int]],
    pool: tuple[int, int, int],
    instantiation: str,
) -> nn.Module:
    """Insert non-local blocks into ``model``, a ResNet of this module, and return it.

    ``places`` lists, for each of the four stages, the numbers (from 0) of the blocks after which a
    non-local block follows. ``pool`` is the max pool (frames, height, width) of the positions to
    which each position is compared. ``instantiation`` is softmax, the embedded Gaussian of the
    paper, or dot_product. A non-local block works with half of the channels. In the released
    configurations non-local blocks follow blocks 1 and 3 of res3 and blocks 1, 3 and 5 of res4,
    with a softmax and a pool of (1, 2, 2). Raises ValueError for a place that does not exist.
    """
    from pytorchvideo.layers.nonlocal_net import create_nonlocal

    blocks: Any = model.get_submodule("blocks")
    stages = [name for name, block in blocks.named_children() if hasattr(block, "res_blocks")]
    res_blocks = [blocks[int(name)].res_blocks for name in stages]
    for name, stage, numbers in zip(stages, res_blocks, places, strict=True):
        channels = stage[0].branch2.conv_c.out_channels
        made = {}
        for number in numbers:
            if not 0 <= number < len(stage):
                raise ValueError(
                    f"no non-local block can follow block {number} of res{stages.index(name) + 2}: "
                    f"it has blocks 0 to {len(stage) - 1}"
                )
            made[number] = create_nonlocal(
                dim_in=channels,
                dim_inner=channels // 2,
                pool_size=pool,
                instantiation=instantiation,
            )
            # With this mark ``init_weights`` lets the block start as the identity, as in
            # PySlowFast. pytorchvideo does not set it.
            made[number].norm.block_final_bn = True
        if made:
            blocks[int(name)] = NonLocalStage(stage, made)
    return model


class SlowFast(nn.Module):
    """pytorchvideo's SlowFast network. It selects the frames of its slow pathway itself.

                .-> T frames, few channels -------> fast pathway ---.
        clips --|                                     |  fusion     |--> pool, concatenate --> fc
                '-> T/alpha frames, all channels -> slow pathway ---'

    The keys of the state_dict are pytorchvideo's own: blocks.0.multipathway_blocks.0.conv.weight etc.
    """

    def __init__(self, blocks: nn.ModuleList, alpha: int) -> None:
        super().__init__()
        self.blocks = blocks
        self.alpha = alpha

    def forward(self, clips: Tensor) -> Tensor:
        """Return logits (B, num_classes) of float clips (B, 3, T, S, S); T must divide by alpha."""
        *stages, pool, head = self.blocks
        pathways = [self.slow_clips(clips), clips]
        for stage in stages:
            pathways = stage(pathways)
        logits: Tensor = head(pool(pathways))
        return logits

    def slow_clips(self, clips: Tensor) -> Tensor:
        """Return the slow frames (B, 3, T/alpha, S, S) of clips (B, 3, T, S, S)."""
        # fvcore counts FLOPs by tracing, where a size is a tensor. Hence the int().
        frames = slow_frames(int(clips.shape[2]), self.alpha)
        # We take slices and not an index tensor, whose copy to the GPU would make the CPU wait in
        # each step. torch.cat also keeps channels_last_3d, while the result of indexing has neither
        # memory format.
        return torch.cat([clips[:, :, frame : frame + 1] for frame in frames], dim=2)


def slow_frames(num_frames: int, alpha: int) -> tuple[int, ...]:
    """Return the indices of the slow pathway's frames: linspace(0, T-1, T/alpha), truncated, as PySlowFast does.

    For example, 8 frames with alpha 4 give (0, 7). Raises ValueError if alpha does not divide T.
    """
    # The fusion convolution has the temporal stride alpha.
    if num_frames % alpha:
        raise ValueError(
            f"SlowFast cannot take clips of T = {num_frames} frames with alpha = {alpha}: T must be a "
            "multiple of alpha, for the fusion to give one output per frame of the slow pathway"
        )
    # We compute in whole numbers, which is exact. PySlowFast's float32 linspace gives the same up
    # to T = 128. For longer clips its rounding sometimes gives the frame before, first at T = 160
    # with alpha 4.
    num_slow = num_frames // alpha
    return tuple(i * (num_frames - 1) // max(num_slow - 1, 1) for i in range(num_slow))


NORMS = (("norm", "activation"), ("norm_a", "act_a"), ("norm_b", "act_b"))
"""Layers of pytorchvideo's blocks and what follows them."""


def fuse_norms(model: nn.Module) -> None:
    """Let batch norm in pytorchvideo's blocks also compute the ReLU behind it, and the sum with the shortcut.

    Our kernels then read and write the clips once for all of them. Parameters keep their names. A second call
    changes nothing.
    """
    module: Any
    for module in model.modules():
        if not type(module).__module__.startswith("pytorchvideo."):
            continue
        layers = dict(module.named_children())
        pairs = [(layers.get(norm), activation) for norm, activation in NORMS]
        # Other functions may not be sums. X3D's is one, without a name.
        sums = getattr(getattr(module, "branch_fusion", None), "__name__", "") == "_trivial_sum"
        if sums:
            pairs = [(getattr(layers["branch2"], "norm_c", None), "activation")]
        for layer, activation in pairs:
            if isinstance(layer, GroupedBatchNorm3d) and type(layers.get(activation)) is nn.ReLU:
                layer.relu, layer.ends_branch = True, sums
                if sums:
                    module.branch_fusion = layer.finish
                # A block with None there applies no activation.
                setattr(module, activation, None)
