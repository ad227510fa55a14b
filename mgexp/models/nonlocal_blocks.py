"""Non-local blocks (Wang et al., CVPR 2018) between the residual blocks of a ResNet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from mgexp.models.resnet import NUM_STAGES
from mgexp.quiet import no_jit_warning

INSTANTIATIONS = ("softmax", "dot_product")
"""How a position weighs the others; softmax is the embedded Gaussian."""


class NonLocalStage(nn.Module):
    """A residual stage, some of whose blocks are followed by a non-local one: (B, C, T, H, W) to the same.

    The keys of the residual blocks stay as they were; the non-local ones are nonlocals.<block>.….
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
    norm: Callable[..., nn.Module],
) -> nn.Module:
    """Puts non-local blocks into ``model``, a ResNet of ``mgexp.models.resnet``, and returns it.

    ``places``: for each of the four stages the blocks, from 0, that one follows. ``pool``: max pool (frames,
    height, width) of the positions that are looked at. Inside there are half the channels.
    Source: released configurations; there they follow blocks 1, 3 of res3 and 1, 3, 5 of res4, with a
    softmax and a pool of (1, 2, 2). The last batch norm is marked to start at 0, as PySlowFast's is and
    pytorchvideo's is not: a non-local block then starts as the identity.
    Raises ValueError for a place that does not exist or an unknown instantiation.
    """
    if instantiation not in INSTANTIATIONS:
        raise ValueError(f"non-local {instantiation} is unknown; known are {INSTANTIATIONS}")
    blocks: Any = model.get_submodule("blocks")
    stages = [name for name, block in blocks.named_children() if hasattr(block, "res_blocks")]
    res_blocks = [blocks[int(name)].res_blocks for name in stages]
    _check_places(places, [len(stage) for stage in res_blocks])
    for name, stage, numbers in zip(stages, res_blocks, places, strict=True):
        channels = stage[0].branch2.conv_c.out_channels
        made = {n: _nonlocal(channels, pool, instantiation, norm) for n in numbers}
        if made:
            blocks[int(name)] = NonLocalStage(stage, made)
    return model


def _nonlocal(
    channels: int,
    pool: tuple[int, int, int],
    instantiation: str,
    norm: Callable[..., nn.Module],
) -> nn.Module:
    with no_jit_warning():
        from pytorchvideo.layers.nonlocal_net import create_nonlocal

    block: Any = create_nonlocal(
        dim_in=channels,
        dim_inner=channels // 2,
        pool_size=pool,
        instantiation=instantiation,
        norm=norm,
    )
    block.norm.block_final_bn = True
    made: nn.Module = block
    return made


def _check_places(places: Sequence[Sequence[int]], num_blocks: Sequence[int]) -> None:
    if len(places) != NUM_STAGES:
        raise ValueError(f"places of non-local blocks are given for {len(places)} stages, not 4")
    for stage, (numbers, count) in enumerate(zip(places, num_blocks, strict=True)):
        for number in numbers:
            if not 0 <= number < count:
                raise ValueError(
                    f"no non-local block can follow block {number} of res{stage + 2}: "
                    f"it has blocks 0 to {count - 1}"
                )
