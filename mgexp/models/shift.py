"""The temporal shift (Lin et al., ICCV 2019): channels of the frames before and after, for nothing."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SHARE = 8
"""Of this many channels one comes from the next frame and one from the frame before (paper, section 3)."""


def temporal_shift(x: Tensor) -> Tensor:
    """(B, C, T, H, W) to the same, in its memory format: a clip's frames exchange 2/8 of their channels.

    Frame t of the first C/8 channels is frame t + 1 of the input, of the next C/8 frame t − 1; there are
    zeros where the clip has no such frame. The rest stays.

        T = 4        0 1 2 3          (numbers: frames of the input)
        C/8 ahead    1 2 3 0s
        C/8 behind   0s 0 1 2
        the rest     0 1 2 3
    """
    share = x.shape[1] // SHARE
    shifted = torch.zeros_like(x)
    shifted[:, :share, :-1] = x[:, :share, 1:]
    shifted[:, share : 2 * share, 1:] = x[:, share : 2 * share, :-1]
    shifted[:, 2 * share :] = x[:, 2 * share :]
    return shifted


class ShiftConv3d(nn.Conv3d):
    """A convolution that sees shifted frames; its weights and keys are those of nn.Conv3d.

    Raises ValueError for channels that do not divide by SHARE.
    """

    def __init__(self, in_channels: int, *args: object, **kwargs: object) -> None:
        if in_channels % SHARE:
            raise ValueError(
                f"{in_channels} channels cannot be shifted: they do not divide by {SHARE}"
            )
        super().__init__(in_channels, *args, **kwargs)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(temporal_shift(x))
