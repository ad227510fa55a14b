"""Compute 3D convolutions and pools that do not need three dimensions by the kernels of two.

Clips in channels_last_3d are also frames (N·T, C, H, W), a time axis (N, C, T, H·W) and rows (N·T·H·W, C), without
a copy. The kernels for these are often faster. A layer takes a form by its class, and keeps its weights and their
names. Results differ only by rounding. Clips in another memory format are copied.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.utils import _triple

ALL = (1, 1, 1)


class FramesConv3d(nn.Conv3d):
    """Convolution 1 x k x k of single frames."""

    def forward(self, x: Tensor) -> Tensor:
        padding = _sides(self.padding)[1:]
        y = F.conv2d(_frames(x), self.weight.squeeze(2), self.bias, self.stride[1:], padding)
        return _clips(y, x.shape[0])


class TimeConv3d(nn.Conv3d):
    """Convolution k x 1 x 1 as (k, 1) over an image of T x H·W positions."""

    def forward(self, x: Tensor) -> Tensor:
        stride, padding = (self.stride[0], 1), (_sides(self.padding)[0], 0)
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
        num, kernel, padding = self.num_frames, self.kernel_size[0], _sides(self.padding)
        clips, frames = x.shape[0], x.shape[2] + 2 * padding[0] - kernel + 1
        blocks = -(-frames // num)
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
        return y.contiguous(memory_format=torch.channels_last_3d)


class Block4Conv3d(BlockConv3d):
    """The same with four frames at once."""

    num_frames = 4


class FramesMaxPool3d(nn.MaxPool3d):
    """Maximum over 1 x k x k positions of single frames."""

    def forward(self, x: Tensor) -> Tensor:
        size, stride, padding = map(_sides, (self.kernel_size, self.stride, self.padding))
        y = F.max_pool2d(_frames(x), size[1:], stride[1:], padding[1:], ceil_mode=self.ceil_mode)
        return _clips(y, x.shape[0])


class TimeMaxPool3d(nn.MaxPool3d):
    """Maximum over k x 1 x 1 positions."""

    def forward(self, x: Tensor) -> Tensor:
        sides = zip(*map(_sides, (self.kernel_size, self.stride, self.padding)), strict=True)
        size, stride, padding = next(sides)
        y = F.max_pool2d(
            x.flatten(3), (size, 1), (stride, 1), (padding, 0), ceil_mode=self.ceil_mode
        )
        return torch.unflatten(y, 3, x.shape[3:])


CONVOLUTIONS = (FramesConv3d, TimeConv3d, RowsConv3d, BlockConv3d)
POOLS = (FramesMaxPool3d, TimeMaxPool3d)

FORM: dict[tuple[str, str], type[nn.Conv3d | nn.MaxPool3d]] = {
    # Measured with torch 2.15 and oneDNN on two AMD EPYCs. What is nn.Conv3d and nn.MaxPool3d here is not slower.
    ("time", "cpu"): TimeConv3d,
    ("strided", "cpu"): FramesConv3d,
    ("space", "cpu"): nn.Conv3d,
    ("point", "cpu"): nn.Conv3d,
    ("stem", "cpu"): BlockConv3d,
    ("space pool", "cpu"): nn.MaxPool3d,
    ("time pool", "cpu"): nn.MaxPool3d,
    # Measured on an H100 (benchmarks/h100.md). Space as frames and points as rows take less time of the GPU too,
    # but more of Python, which limits a step until it is a CUDA graph.
    ("time", "cuda"): nn.Conv3d,
    ("strided", "cuda"): nn.Conv3d,
    ("space", "cuda"): nn.Conv3d,
    ("point", "cuda"): nn.Conv3d,
    ("stem", "cuda"): Block4Conv3d,
    ("space pool", "cuda"): nn.MaxPool3d,
    ("time pool", "cuda"): nn.MaxPool3d,
}
"""The class of the layers of a kind (`kind_of`) that train on a type of device. Others stay as they are."""


def take_forms(model: nn.Module, device_type: str) -> None:
    """Give the layers of ``model`` the forms in which they train on the device."""
    for module in model.modules():
        module.__class__ = FORM.get((kind_of(module), device_type), type(module))


def drop_forms(model: nn.Module) -> nn.Module:
    """Make all layers those of torch again, and return the model. A block would be counted with its zeros."""
    for module in model.modules():
        forms = ((nn.Conv3d, CONVOLUTIONS), (nn.MaxPool3d, POOLS))
        plain = [base for base, those in forms if isinstance(module, those)]
        module.__class__ = plain[0] if plain else type(module)
    return model


def kind_of(layer: nn.Module) -> str:
    """Name the kind of a layer; "" if it has no other form, or is a custom class.

    A convolution is a "point" (1 x 1 x 1), "strided" (a point with a stride over pixels), "space" (1 x k x k),
    "time" (k x 1 x 1) or a "stem" (k x 7 x 7 of three channels). A max pool is a "space pool" or a "time pool".
    """
    if type(layer) is nn.MaxPool3d:
        over_space, over_time = _sees(layer.kernel_size, layer.stride, layer.padding)
        if _sides(layer.dilation) != ALL or layer.return_indices or over_space == over_time:
            return ""
        return "space pool" if over_space else "time pool"
    return _kind_of_convolution(layer) if type(layer) is nn.Conv3d else ""


def _kind_of_convolution(layer: nn.Conv3d) -> str:
    if (layer.groups, layer.dilation, layer.padding_mode) != (1, ALL, "zeros"):
        return ""
    if isinstance(layer.padding, str):
        return ""
    over_space, over_time = _sees(layer.kernel_size, layer.stride, layer.padding)
    if over_space and over_time:
        is_stem = layer.kernel_size[1:] == (7, 7) and layer.stride[0] == 1
        return "stem" if is_stem and layer.in_channels == 3 else ""
    if over_space:
        return "strided" if layer.kernel_size == ALL else "space"
    return "time" if over_time else "point"


def _sees(kernel_size: object, stride: object, padding: object) -> tuple[bool, bool]:
    """Return whether a layer does anything over pixels, and whether it does anything over frames."""
    sides = list(zip(*map(_sides, (kernel_size, stride, padding)), strict=True))
    frames, height, width = (side != (1, 1, 0) for side in sides)
    return height or width, frames


def _sides(value: object) -> tuple[int, int, int]:
    return cast("tuple[int, int, int]", _triple(value))


def _frames(x: Tensor) -> Tensor:
    """View clips (N, C, T, H, W) as frames (N·T, C, H, W)."""
    return x.transpose(1, 2).flatten(0, 1)


def _clips(frames: Tensor, num_clips: int) -> Tensor:
    return torch.unflatten(frames, 0, (num_clips, -1)).transpose(1, 2)
