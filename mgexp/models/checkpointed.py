"""Blocks of a network that keep less for the backward pass, and compute the rest again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from mgexp.multigrid.batchnorm import untracked


class CheckpointedBlocks(nn.ModuleList):
    """The ``blocks`` of a network, under the same names; in training all but the last are computed twice.

    What goes from block to block is kept, and nothing inside them. Statistics of batch normalisation are noted
    the first time alone, so that the result is the same.
    """

    def __iter__(self) -> Iterator[Any]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, position: Any) -> Any:  # noqa: ANN401 - as that of ModuleList
        block = super().__getitem__(position)
        recomputes = self.training and torch.is_grad_enabled()
        if not recomputes or not isinstance(position, int) or position % len(self) == len(self) - 1:
            return block
        return _twice(block)


def _twice(block: nn.Module) -> Callable[[Any], Any]:
    return partial(
        checkpoint,
        partial(_run, block),
        use_reentrant=False,
        preserve_rng_state=False,  # the dropout is in the last block
        context_fn=partial(_contexts, block),
    )


def _run(block: nn.Module, x: Any) -> Any:  # noqa: ANN401 - clips, or a list of them for each pathway
    """A list is copied: the block writes its results over it, and is to find the same the second time."""
    return block([*x] if isinstance(x, list) else x)


def _contexts(
    block: nn.Module,
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    return nullcontext(), untracked(block)
