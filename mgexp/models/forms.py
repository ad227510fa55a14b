"""Compute 3D convolutions that do not need three dimensions by the kernels of two, or by a matrix product.

Clips in channels_last_3d are also frames (N·T, C, H, W), a time axis (N, C, T, H·W) and rows (N·T·H·W, C), without
a copy. Kernels for these are often faster. A layer takes a form by its class, and keeps its weights and their
names. Results differ only by rounding. Clips in another memory format are copied.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ALL = (1, 1, 1)


class FramesConv3d(nn.Conv3d):
    """Convolution 1 x k x k of single frames."""

    def forward(self, x: Tensor) -> Tensor:
        frames = x.transpose(1, 2).flatten(0, 1)
        weight, padding = self.weight.squeeze(2), _padding(self)[1:]
        y = F.conv2d(frames, weight, self.bias, self.stride[1:], padding)
        return torch.unflatten(y, 0, (x.shape[0], -1)).transpose(1, 2)


class TimeConv3d(nn.Conv3d):
    """Convolution k x 1 x 1 as (k, 1) over an image of T x H·W positions."""

    def forward(self, x: Tensor) -> Tensor:
        stride, padding = (self.stride[0], 1), (_padding(self)[0], 0)
        y = F.conv2d(x.flatten(3), self.weight.flatten(3), self.bias, stride, padding)
        return torch.unflatten(y, 3, x.shape[3:])


class RowsConv3d(nn.Conv3d):
    """Convolution 1 x 1 x 1 as a product of two matrices."""

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x.permute(0, 2, 3, 4, 1), self.weight.flatten(1), self.bias)
        return y.permute(0, 4, 1, 2, 3)


class BlockConv3d(nn.Conv3d):
    """Convolution k x r x r of clips with few channels: ``num_frames`` frames of the output at once.

    The k + num_frames − 1 frames that these need are the channels of one picture. So each of them is read once for
    several frames. The weight has zeros where a frame of the output does not see a frame of the input.
    """

    num_frames = 2

    def forward(self, x: Tensor) -> Tensor:
        num, kernel, padding = self.num_frames, self.kernel_size[0], _padding(self)
        clips, frames = x.shape[0], x.shape[2] + 2 * padding[0] - kernel + 1
        blocks = -(-frames // num)
        # Zeros fill the last block of frames. What it computes beyond the output is cut off below.
        behind = blocks * num + kernel - 1 - x.shape[2] - padding[0]
        padded = F.pad(x.permute(0, 2, 3, 4, 1), (0, 0, 0, 0, 0, 0, padding[0], behind))
        # (N, blocks, H, W, C, frames of the input)
        seen = padded.unfold(1, kernel + num - 1, num).transpose(4, 5).flatten(4)
        weight = self.weight.transpose(1, 2)
        shifted = [F.pad(weight, (0,) * 6 + (i, num - 1 - i)) for i in range(num)]
        band = torch.cat(shifted).flatten(1, 2).contiguous(memory_format=torch.channels_last)
        bias = None if self.bias is None else self.bias.repeat(num)
        pictures = seen.flatten(0, 1).permute(0, 3, 1, 2)
        y = F.conv2d(pictures, band, bias, self.stride[1:], padding[1:])
        y = y.view(clips, blocks, num, -1, *y.shape[2:]).permute(0, 3, 1, 2, 4, 5)
        y = y.flatten(2, 3)[:, :, :frames]
        # The view above is not dense, and the next layer would copy it in every pass.
        return y.contiguous(memory_format=torch.channels_last_3d)


class Block4Conv3d(BlockConv3d):
    """The same with four frames at once."""

    num_frames = 4


FORMS = (FramesConv3d, TimeConv3d, RowsConv3d, BlockConv3d)

FORM: dict[tuple[str, str], type[nn.Conv3d]] = {
    # Measured with torch 2.15 and oneDNN on two AMD EPYCs, where nn.Conv3d and nn.MaxPool3d are not slower for
    # other kernels.
    ("time", "cpu"): TimeConv3d,
    ("strided", "cpu"): FramesConv3d,
    ("stem", "cpu"): BlockConv3d,
    # Measured on an H100 (benchmarks/h100.md). Other forms take less time of the GPU too, but more of Python,
    # which limits a step until it is a CUDA graph.
    ("stem", "cuda"): Block4Conv3d,
    ("space", "cuda graph"): FramesConv3d,
    ("point", "cuda graph"): RowsConv3d,
}
"""The class of the layers of a kind (`kind_of`) that train in a place. Others stay as they are."""


def take_forms(model: nn.Module, place: str) -> None:
    """Give the layers of ``model`` the forms in which they train on "cpu", on "cuda" or in a "cuda graph"."""
    for module in model.modules():
        # The class alone decides what forward computes, so parameters, hooks and the optimizer's state stay.
        module.__class__ = FORM.get((kind_of(module), place), type(module))


def drop_forms(model: nn.Module) -> nn.Module:
    """Make all layers those of torch again, and return the model. A block would be counted with its zeros."""
    for module in model.modules():
        module.__class__ = nn.Conv3d if isinstance(module, FORMS) else type(module)
    return model


def kind_of(layer: nn.Module) -> str:
    """Name the kind of a convolution; "" if it has no other form, or is a custom class.

    It is a "point" (1 x 1 x 1), "strided" (a point with a stride over pixels), "space" (1 x k x k), "time"
    (k x 1 x 1) or a "stem" (k x 7 x 7 of three channels).
    """
    if type(layer) is not nn.Conv3d or isinstance(layer.padding, str):
        return ""
    if (layer.groups, layer.dilation, layer.padding_mode) != (1, ALL, "zeros"):
        return ""
    kernel_size, stride = layer.kernel_size, layer.stride
    sides = zip(kernel_size, stride, layer.padding, strict=True)
    over_time, *over_space = (side != (1, 1, 0) for side in sides)
    if not any(over_space):
        return "time" if over_time else "point"
    # Below 8 channels, oneDNN writes beyond its memory in the weight gradient of a strided point (its issue 6035).
    if not over_time and (kernel_size != ALL or layer.in_channels >= 8):
        return "strided" if kernel_size == ALL else "space"
    is_stem = kernel_size[1:] == (7, 7) and stride[0] == 1 and layer.in_channels == 3
    return "stem" if is_stem else ""


def _padding(layer: nn.Conv3d) -> tuple[int, int, int]:
    return cast("tuple[int, int, int]", layer.padding)
