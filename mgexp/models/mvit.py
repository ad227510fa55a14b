"""MViTv2 (Li et al., CVPR 2022) as torchvision has it, for clips of every shape.

torchvision's network takes the grid of its tokens from its settings, and so fails at any other shape than the full
one. Here the grid is that of the clip. Its relative positions are tables of the distances in the full clip, which
torchvision's own code interpolates for other grids. So no parameter depends on the shape.

Where a pool does not divide the grid, that code places the keys elsewhere than the pool does: pooled by 4, 14
tokens give 4 keys, which it takes to lie 3.5 tokens apart. So a clip must divide into the cells of the coarsest
grid.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torchvision.models.video.mvit import MSBlockConfig, MultiscaleBlock, MViT

from mgexp.config.keys import MvitKeys
from mgexp.models.layers import DropPath

PATCH_STRIDE = (2, 4, 4)
"""Frames, height and width from token to token in the first block. torchvision's kernel is (3, 7, 7)."""
KERNEL = [3, 3, 3]
"""Kernel of the convolutions that pool queries, keys and values."""


class Block(MultiscaleBlock):  # type: ignore[misc]  # torchvision has no types
    """A block whose two branches are dropped by clip, each with draws of its own."""

    def __init__(self, *args: Any, stochastic_depth_prob: float, **settings: Any) -> None:  # noqa: ANN401 - torchvision's
        super().__init__(*args, **settings)
        # It draws from torch's generator, and so would depend on how clips are shared among processes.
        del self.stochastic_depth
        self.drop1, self.drop2 = (DropPath(stochastic_depth_prob) for _ in range(2))

    def forward(self, x: Tensor, grid: tuple[int, int, int]) -> tuple[Tensor, tuple[int, int, int]]:
        """Return the tokens (B, 1 + N, C) after the block, and their grid."""
        normed = self.norm1(x)
        attended, pooled = self.attn(normed, grid)
        # MViTv2 changes the number of channels in the attention, and not in the perceptron.
        skip = x if self.project is None else self.project(normed)
        skip = skip if self.pool_skip is None else self.pool_skip(skip, grid)[0]
        x = skip + self.drop1(attended)
        return x + self.drop2(self.mlp(self.norm2(x))), pooled


class MultiscaleTransformer(MViT):  # type: ignore[misc]
    """Turn float clips (B, 3, T, S, S) into logits (B, classes). Names of parameters are torchvision's."""

    cell: tuple[int, int]
    """Frames and pixels of a place in the coarsest grid."""

    def forward(self, clips: Tensor) -> Tensor:
        """Return logits (B, classes). Raises ValueError for clips that do not divide into cells."""
        check_size(clips.shape[2], clips.shape[3], self.cell)
        x = self.conv_proj(clips)
        # fvcore counts by tracing, where a size is a tensor. Hence the int().
        grid = tuple(int(size) for size in x.shape[2:])
        x = self.pos_encoding(x.flatten(2).transpose(1, 2))
        for block in self.blocks:
            x, grid = block(x, grid)
        return self.head(self.norm(x)[:, 0])  # type: ignore[no-any-return]

    def no_weight_decay(self) -> set[str]:
        """Name the parameters that are not decayed, besides those of one dimension: the positions."""
        return {name for name, _ in self.named_parameters() if ".rel_pos_" in name}


def check_size(frames: int, crop: int, cell: tuple[int, int]) -> None:
    """Raise ValueError if a clip does not divide into cells of frames and pixels."""
    if frames % cell[0] or crop % cell[1]:
        raise ValueError(
            f"a clip of {frames} x {crop} x {crop} does not divide into {cell[0]} x {cell[1]} x {cell[1]}, a "
            "place in the coarsest grid: choose MULTIGRID's factors or MVIT.STAGES so that all shapes do"
        )


def mvit(
    keys: MvitKeys, num_classes: int, full: tuple[int, int], dropout: float
) -> MultiscaleTransformer:
    """Build a network of ``DEPTH`` blocks.

    The blocks ``STAGES`` halve height and width of the grid, and double channels and heads. Keys and values have a
    grid as coarse as that of the last stage. ``full``: frames and crop of the full shape. The defaults of the keys
    are torchvision's mvit_v2_s. Raises ValueError if the full clip does not divide into cells, or for stages that
    are no blocks.
    """
    stages, depth, width, heads = keys.STAGES, keys.DEPTH, keys.EMBED_DIM, keys.NUM_HEADS
    cell = (PATCH_STRIDE[0], PATCH_STRIDE[1] * 2 ** len(stages))
    check_size(*full, cell)
    if any(not 0 < block < depth for block in stages) or len(set(stages)) < len(stages):
        raise ValueError(
            f"the stages {stages} are not different blocks from 1 to {depth - 1}: change MVIT.STAGES or MVIT.DEPTH"
        )
    if width % heads:
        raise ValueError(
            f"{width} channels do not divide by {heads} heads: change MVIT.EMBED_DIM or MVIT.NUM_HEADS"
        )
    blocks, channels = [], width
    for number in range(depth):
        passed = sum(block <= number for block in stages)
        step, coarseness = 2 if number in stages else 1, 2 ** (len(stages) - passed)
        blocks.append(
            MSBlockConfig(
                num_heads=heads * step,
                input_channels=channels,
                output_channels=channels * step,
                kernel_q=KERNEL,
                kernel_kv=KERNEL,
                stride_q=[1, step, step],
                stride_kv=[1, coarseness, coarseness],
            )
        )
        channels, heads = channels * step, heads * step
    model = MultiscaleTransformer(
        spatial_size=(full[1], full[1]),
        temporal_size=full[0],
        block_setting=blocks,
        # As in torchvision's mvit_v2_s.
        residual_pool=True,
        residual_with_cls_embed=False,
        rel_pos_embed=True,
        proj_after_attn=True,
        dropout=dropout,
        stochastic_depth_prob=keys.DROPPATH_RATE,
        num_classes=num_classes,
        block=Block,
    )
    model.cell = cell
    return model
