"""SlowFast (Feichtenhofer et al., ICCV 2019), built by pytorchvideo, for clips of every shape."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mgexp.models.layers import no_jit_warning


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
        """Return logits (B, num_classes) of float clips (B, 3, T, S, S).

        Raises ValueError if alpha does not divide T.
        """
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
    The fusion convolution has the temporal stride alpha, and then would not give one output for
    each slow frame.
    """
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


def slowfast(
    *,
    num_classes: int,
    depth: int,
    width: int = 64,
    alpha: int,
    beta_inv: int,
    fusion_channel_ratio: int,
    fusion_kernel_frames: int,
    dropout: float,
) -> SlowFast:
    """Build a SlowFast network that returns logits, in training and in evaluation.

    ``depth`` is 18, 50 or 101. 18 is pytorchvideo's network with one bottleneck per stage, not the
    image ResNet-18. ``width`` is the number of channels of the slow stem; the fast
    pathway has 1/``beta_inv`` of them. ``alpha`` is the ratio of fast to slow frames. The fusion
    convolution spans ``fusion_kernel_frames`` fast frames and multiplies their channels by
    ``fusion_channel_ratio``. The released configurations have beta_inv 8 and fusion_channel_ratio 2.
    With alpha 4 their fusion spans 7 frames (8x8, 16x8) or 5 (R101), with alpha 8 it spans 5 frames
    (4x16). Raises ValueError for arguments that pytorchvideo would round, or refuse without a reason.
    """
    if width % beta_inv:
        raise ValueError(
            f"width = {width} channels cannot be divided by beta_inv = {beta_inv} for the fast pathway"
        )
    if fusion_kernel_frames % 2 == 0:
        raise ValueError(
            f"fusion_kernel_frames = {fusion_kernel_frames} must be odd: an even kernel gives one frame "
            "more than the slow pathway has"
        )
    with no_jit_warning():
        from pytorchvideo.models.slowfast import create_slowfast

    net = create_slowfast(
        slowfast_channel_reduction_ratio=beta_inv,
        slowfast_conv_channel_fusion_ratio=fusion_channel_ratio,
        slowfast_fusion_conv_kernel_size=(fusion_kernel_frames, 1, 1),
        slowfast_fusion_conv_stride=(alpha, 1, 1),
        model_depth=depth,
        model_num_class=num_classes,
        dropout_rate=dropout,
        stem_dim_outs=(width, width // beta_inv),
        # The default pool has a fixed size, which fits a single shape.
        head_pool=nn.AdaptiveAvgPool3d,
    )
    # pytorchvideo computes some strides with NumPy. torch.compile treats NumPy's integers as unknown sizes, and
    # then cannot compile these convolutions.
    for module in net.modules():
        if isinstance(module, nn.Conv3d):
            frames, height, width = map(int, module.stride)
            module.stride = (frames, height, width)
    return SlowFast(net.blocks, alpha)
