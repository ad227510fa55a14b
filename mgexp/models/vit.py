"""A plain vision transformer for video, whose parameters keep one size at all shapes of clips.

Positions are a function of the place relative to the full clip. A token in the middle of a coarse clip has the
position of a token in the middle of a full clip. So a change of shape changes neither parameters nor the state of
the optimizer, and at the full shape nothing is interpolated.

Sources: Dosovitskiy et al., ICLR 2021 (the network); Arnab et al., ICCV 2021 (tubelets, "joint" attention); Su et
al., arXiv 2104.09864 (rotary positions); Assran et al., arXiv 2506.09985 (V-JEPA 2, which has them along the same
three axes). That rotary positions are scaled to the full clip is our choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgexp.config.keys import VitKeys
from mgexp.models.layers import DropPath

Grid = tuple[int, int, int]
"""Tokens along time, height and width."""
Positions = Literal["learned", "rotary", "vjepa2"]
ROTARY_BASE = {"rotary": 100.0, "vjepa2": 10_000.0}
"""The longest wavelength of rotary positions in tokens, divided by 2π. Assumption of 100: the full clip has fewer
tokens along each axis, so that no two of its places look alike. (Language models have 10,000, for long texts.)"""
OTHER_WIDTH = "change VIT.EMBED_DIM or VIT.NUM_HEADS"
INIT_STD = 0.02
"""Standard deviation of the first weights, a normal distribution that is cut off at twice this (timm's ViT)."""


@dataclass(frozen=True)
class Rotation:
    """Rotary positions of tokens: ``cos`` and ``sin`` (tokens, channels) turn pairs of channels.

    ``are_neighbours``: channels 0 and 1 are a pair, and 2 and 3. Else a pair has a channel of each half.
    """

    cos: Tensor
    sin: Tensor
    are_neighbours: bool

    def __call__(self, x: Tensor) -> Tensor:
        """Turn the channels of ``x`` (..., tokens, channels)."""
        sizes, dim = ((-1, 2), -1) if self.are_neighbours else ((2, -1), -2)
        first, second = x.unflatten(-1, sizes).unbind(dim)  # type: ignore[no-untyped-call]
        across = torch.stack([-second, first], dim).flatten(-2)
        return x * self.cos.to(x.dtype) + across * self.sin.to(x.dtype)


class Block(nn.Module):
    """Attention and a perceptron, each after a LayerNorm and in a residual branch."""

    def __init__(self, width: int, num_heads: int, mlp_ratio: float, drop_path: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        hidden = int(mlp_ratio * width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.drop1, self.drop2 = DropPath(drop_path), DropPath(drop_path)

    def forward(self, inputs: tuple[Tensor, Rotation | None]) -> tuple[Tensor, Rotation | None]:
        """Change the tokens (B, N, C) of ``inputs``; the positions of its tokens stay."""
        x, rotation = inputs
        x = x + self.drop1(self.attend(self.norm1(x), rotation))
        return x + self.drop2(self.mlp(self.norm2(x))), rotation

    def attend(self, x: Tensor, rotation: Rotation | None) -> Tensor:
        query, key, value = (
            self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        )
        if rotation is not None:
            query, key = rotation(query), rotation(key)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class VideoTransformer(nn.Module):
    """Turn float clips (B, 3, T, S, S) into logits (B, classes).

    T must divide by the frames of ``TUBELET``, and S by its pixels. ``full``: frames and crop of the full shape.
    ``POSITIONS``: learned (a table for the full clip, interpolated for others), rotary, or those of V-JEPA 2. As
    in V-JEPA 2, tokens are then normalised before their mean is taken, and not after. ``CLS_EMBED_ON``: the
    classifier sees a class token, and not the mean of all tokens. ``DROPPATH_RATE``: the share of the last block;
    it grows linearly from 0 at the first.
    """

    def __init__(
        self, keys: VitKeys, num_classes: int, full: tuple[int, int], dropout: float
    ) -> None:
        super().__init__()
        width, num_heads, positions = keys.EMBED_DIM, keys.NUM_HEADS, keys.POSITIONS
        if width % num_heads:
            raise ValueError(f"{width} channels do not divide by {num_heads} heads: {OTHER_WIDTH}")
        self.head_channels = width // num_heads
        # Each of three axes turns a pair of channels or more.
        if positions != "learned" and (self.head_channels < 6 or self.head_channels % 2):
            raise ValueError(
                f"{self.head_channels} channels of a head: rotary positions take an even number, 6 or "
                f"more: {OTHER_WIDTH}"
            )
        self.tubelet = keys.TUBELET
        self.full = self.grid(full[0], full[1], full[1])
        self.kind = positions
        self.patches = nn.Conv3d(3, width, keys.TUBELET, stride=keys.TUBELET)
        self.positions = self.class_token = None
        if positions == "learned":
            self.positions = nn.Parameter(torch.zeros(1, width, *self.full))
        if keys.CLS_EMBED_ON:
            self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        shares = [keys.DROPPATH_RATE * n / max(1, keys.DEPTH - 1) for n in range(keys.DEPTH)]
        self.blocks = nn.ModuleList(
            Block(width, num_heads, keys.MLP_RATIO, share) for share in shares
        )
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(width, num_classes)

    def no_weight_decay(self) -> set[str]:
        """Name the parameters that are not decayed, besides those of one dimension."""
        return {"positions", "class_token"}

    def grid(self, frames: int, height: int, width: int) -> Grid:
        """Return the tokens of a clip. Raises ValueError for a clip that does not divide into tubelets."""
        sizes = (frames, height, width)
        if any(size % step or not size for size, step in zip(sizes, self.tubelet, strict=True)):
            clip, tubelet = (" x ".join(map(str, lengths)) for lengths in (sizes, self.tubelet))
            raise ValueError(
                f"a clip of {clip} does not divide into tubelets of {tubelet}: choose MULTIGRID's factors or "
                "VIT.TUBELET so that all shapes do"
            )
        time, tall, wide = (size // step for size, step in zip(sizes, self.tubelet, strict=True))
        return time, tall, wide

    def forward(self, clips: Tensor) -> Tensor:
        grid = self.grid(*clips.shape[2:])
        x, rotation = self.patches(clips), None
        if self.positions is not None:
            x = x + self.table(grid).to(x.dtype)
        x = x.flatten(2).transpose(1, 2)
        if self.positions is None:
            rotation = self.rotation(grid, x.device)
        if self.class_token is not None:
            # len(x) would be a plain number, which fixes the number of clips of an exported network.
            x = torch.cat([self.class_token.to(x.dtype).expand(x.shape[0], -1, -1), x], dim=1)
        for block in self.blocks:
            x, rotation = block((x, rotation))
        if self.class_token is not None:
            x = self.norm(x)[:, 0]
        else:
            x = self.norm(x).mean(1) if self.kind == "vjepa2" else self.norm(x.mean(1))
        return self.head(self.dropout(x))  # type: ignore[no-any-return]

    def table(self, grid: Grid) -> Tensor:
        """Return the learned positions (1, C, t, h, w) of a grid."""
        assert self.positions is not None
        if grid == self.full:
            return self.positions
        # Without align_corners: a token is a cell, and its middle keeps its place in the clip, as in
        # ``rotation``.
        return F.interpolate(self.positions, grid, mode="trilinear")

    def rotation(self, grid: Grid, device: torch.device) -> Rotation:
        """Return the rotary positions of a grid. A class token comes first and is not turned."""
        # A third of the pairs of channels turns with each axis. The pairs that are left do not turn.
        num_pairs = self.head_channels // 2
        per_axis = num_pairs // 3
        speeds = ROTARY_BASE[self.kind] ** -(torch.arange(per_axis, device=device) / per_axis)
        # The speeds (pairs, 2) of the channels. V-JEPA 2 counts channels in place of pairs, so the two of a pair
        # differ. That is no rotation, but its weights were trained with it.
        is_theirs = self.kind == "vjepa2"
        both = speeds.repeat(2).view(-1, 2) if is_theirs else speeds[:, None].expand(-1, 2)
        axes = []
        for size, full in zip(grid, self.full, strict=True):
            # The middle of a token lies where it would lie in the full clip.
            places = (torch.arange(size, device=device) + 0.5) * (full / size) - 0.5
            axes.append(places[:, None, None] * both)
        angles = torch.cat(
            [
                axes[0][:, None, None].expand(*grid, -1, -1),
                axes[1][None, :, None].expand(*grid, -1, -1),
                axes[2][None, None, :].expand(*grid, -1, -1),
                torch.zeros(*grid, num_pairs - 3 * per_axis, 2, device=device),
            ],
            dim=-2,
        ).flatten(0, 2)
        if self.class_token is not None:
            angles = F.pad(angles, (0, 0, 0, 0, 1, 0))
        angles = (angles if is_theirs else angles.transpose(1, 2)).flatten(1)
        return Rotation(angles.cos(), angles.sin(), are_neighbours=is_theirs)


def init_transformer(model: VideoTransformer, fc_init_std: float) -> None:
    """Draw the first weights: those of timm's ViT, and a classifier of standard deviation ``fc_init_std``."""
    tables = [table for table in (model.positions, model.class_token) if table is not None]
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv3d)]
    for weight in (*tables, *(layer.weight for layer in layers)):
        nn.init.trunc_normal_(weight, std=INIT_STD, a=-2 * INIT_STD, b=2 * INIT_STD)
    for layer in layers:
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    nn.init.normal_(model.head.weight, std=fc_init_std)
