"""How much memory a clip takes in training: what autograd keeps for the backward pass."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


def activation_bytes(model: nn.Module, frames: int, crop: int) -> int:
    """Bytes that a training forward pass in fp32 keeps of one clip (3, frames, crop, crop); nothing is computed.

    The tensors that autograd saves on a copy of ``model`` on the meta device, each storage once, the weights
    not counted; of two clips, halved, since batch norm does not train on a single value.
    An estimate: a step also needs weights, gradients, momenta and the workspace of convolutions.
    """
    clone = copy.deepcopy(model).to("meta").train()
    weights = [tensor.untyped_storage() for tensor in (*clone.parameters(), *clone.buffers())]
    kept = {storage._cdata: storage for storage in weights}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage  # held, so that no other storage gets its address
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _output = clone(torch.zeros(2, 3, frames, crop, crop, device="meta"))
    saved = kept.keys() - {storage._cdata for storage in weights}
    return sum(kept[key].nbytes() for key in saved) // 2
