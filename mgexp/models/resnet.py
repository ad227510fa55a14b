"""I3D, C2D, Slow and TSM: one ResNet, built by pytorchvideo, with four ways to look along time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from mgexp.models.shift import ShiftConv3d
from mgexp.quiet import no_jit_warning

DEPTHS = (50, 101)
"""Legal depths, those of the released configurations."""

NUM_STAGES = 4


@dataclass(frozen=True)
class Temporal:
    """What a ResNet does along time, in frames.

    ``stem``: kernel of the first convolution. ``blocks``: for each stage the kernels of the first
    convolution of its blocks, repeated over them. ``pools``: two frames become one after the first stage.
    ``shifts``: channels move between frames instead (TSM).
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
    norm: Callable[..., nn.Module],
) -> nn.Module:
    """A network for float clips (B, 3, T, S, S) -> logits (B, num_classes); T >= 2 where ``temporal`` pools.

    ``depth`` is one of DEPTHS, ``width`` the stem's channels. ``norm(num_features=, eps=, momentum=)``
    makes a normalisation layer, nn.BatchNorm3d or a subclass of it. The head averages over all frames and
    pixels, of any number: a test on larger crops is fully convolutional. Logits come out in training and in
    evaluation alike; the keys of the state_dict are pytorchvideo's own. Raises ValueError for an unknown
    depth, or channels that cannot be shifted.
    """
    if depth not in DEPTHS:
        raise ValueError(f"a ResNet of depth {depth} is unknown; known depths are {DEPTHS}")
    with no_jit_warning():
        from pytorchvideo.models.resnet import create_bottleneck_block, create_resnet

    def shifted(**arguments: Any) -> nn.Module:  # noqa: ANN401 - whatever pytorchvideo passes on
        block: nn.Module = create_bottleneck_block(**{**arguments, "conv_a": ShiftConv3d})
        return block

    model: nn.Module = create_resnet(
        model_depth=depth,
        model_num_class=num_classes,
        dropout_rate=dropout,
        norm=norm,
        stem_dim_out=width,
        stem_conv_kernel_size=(temporal.stem, 7, 7),
        stage1_pool=nn.MaxPool3d if temporal.pools else None,
        stage_conv_a_kernel_size=[[(t, 1, 1) for t in stage] for stage in temporal.blocks],
        bottleneck=shifted if temporal.shifts else create_bottleneck_block,
        head_pool=nn.AdaptiveAvgPool3d,  # the default pool fits a single shape
    )
    return model
