"""Compute the least time that a machine needs for a step: for each operator, that of its bytes or of its FLOPs.

It counts every tensor as read from memory and written to it. A cache that holds a tensor between two operators can
make a step of small clips faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peak import Peak
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import conv_flop_count, flop_registry

from mgexp.plan.timing import Step

AGAIN = {
    # Statistics come before the normalisation that needs them.
    "native_batch_norm": (0,),
    "native_batch_norm_backward": (0, 1),
    "cudnn_batch_norm": (0,),
    "cudnn_batch_norm_backward": (0, 1),
    # One kernel computes the gradient of the input, and another one that of the weight.
    "native_layer_norm_backward": (0, 1),
    "convolution_backward": (0,),
}
"""The arguments that these operators read twice. All others read each input once."""


@dataclass(frozen=True)
class Roofline:
    """What the operators of a step do, each by itself: FLOPs, and bytes of all inputs and outputs."""

    operators: tuple[tuple[int, int], ...]

    @property
    def flops(self) -> int:
        """The FLOPs of convolutions and matrix products, as torch counts them."""
        return sum(flops for flops, _ in self.operators)

    @property
    def num_bytes(self) -> int:
        """The bytes that go between memory and processor if no operator is fused with another."""
        return sum(num_bytes for _, num_bytes in self.operators)

    def seconds(self, peak: Peak) -> float:
        """Add the least time of each operator on a machine with this peak."""
        flops, rate = peak.flops_per_second, peak.bytes_per_second
        return sum(max(work / flops, num_bytes / rate) for work, num_bytes in self.operators)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Record the FLOPs and bytes of all operators that run in the block. Views move nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: list[tuple[int, int]] = []

    # torch decides the signature.
    def __torch_dispatch__(
        self,
        func: OpOverload[..., object],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if func.is_view or name == "_unsafe_view" or "empty" in name:
            return out
        again: list[object] = [args[place] for place in AGAIN.get(name, ())]
        count = flop_registry.get(func.overloadpacket)
        flops = count(*args, **kwargs, out_val=out) if count else 0
        if name == "convolution_backward":
            # torch counts the gradient of the weight as if the layer had one group.
            result, clips, weight, transposed, mask = (args[i] for i in (0, 1, 2, 7, 10))
            flops = sum(mask[:2]) * conv_flop_count(
                clips.shape, weight.shape, result.shape, transposed
            )
            again = again if mask[0] and mask[1] else []
        if next(tensors(out), None) is None:
            # An update of many tensors returns nothing. Its gradients are marked as written for a scaler alone.
            again += [
                value
                for each, value in zip(func._schema.arguments, args, strict=False)
                if each.alias_info and each.alias_info.is_write and each.name != "grads"
            ]
        num_bytes = sum(one.nbytes for one in tensors((args, kwargs, out, again)))
        self.operators.append((flops, num_bytes))
        return out


def tensors(tree: object) -> Iterator[Tensor]:
    """Yield all tensors of nested lists, tuples and dicts."""
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def roofline_of(step: Step) -> Roofline:
    """Run the step once and record its operators. Kernels that torch does not know are not recorded."""
    with Recorder() as recorder:
        step()
    return Roofline(tuple(recorder.operators))
