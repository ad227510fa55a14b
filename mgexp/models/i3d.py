"""I3D (Carreira and Zisserman, CVPR 2017) as a ResNet, built by pytorchvideo, for every shape."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from mgexp.quiet import no_jit_warning

DEPTHS = (50, 101)
"""Legal depths, those of the released configurations."""

# Kernels (frames, height, width) of the first convolution of the blocks of each stage, a list being
# repeated over the blocks. PySlowFast's temporal kernels of "i3d", as in pytorchvideo.models.hub.i3d_r50.
_CONV_A_KERNELS = (
    (3, 1, 1),
    [(3, 1, 1), (1, 1, 1)],
    [(3, 1, 1), (1, 1, 1)],
    [(1, 1, 1), (3, 1, 1)],
)


def i3d(
    *,
    num_classes: int,
    depth: int,
    width: int = 64,
    dropout: float,
    norm: Callable[..., nn.Module],
) -> nn.Module:
    """An I3D network: float clips (B, 3, T, S, S), T >= 2 -> logits (B, num_classes).

    ``depth`` is one of DEPTHS, ``width`` the stem's channels. ``norm(num_features=, eps=, momentum=)``
    makes a normalisation layer, nn.BatchNorm3d or a subclass of it. A pool after the first stage halves
    T. Logits come out in training and in evaluation alike; the keys of the state_dict are
    pytorchvideo's own. Raises ValueError for an unknown depth.
    """
    if depth not in DEPTHS:
        raise ValueError(f"an I3D network of depth {depth} is unknown; known depths are {DEPTHS}")
    with no_jit_warning():
        from pytorchvideo.models.resnet import create_resnet

    model: nn.Module = create_resnet(
        model_depth=depth,
        model_num_class=num_classes,
        dropout_rate=dropout,
        norm=norm,
        stem_dim_out=width,
        stem_conv_kernel_size=(5, 7, 7),
        stage1_pool=nn.MaxPool3d,
        stage_conv_a_kernel_size=_CONV_A_KERNELS,
        head_pool=nn.AdaptiveAvgPool3d,  # the default pool fits a single shape
    )
    return model
