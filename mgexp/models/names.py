"""The names that other code bases give to the tensors of our models.

Our names are pytorchvideo's, so its files need no renaming. For every other convention a function
turns our name into theirs. In this direction the loader asks for each tensor of the model, and so
it finds the tensors of a file that no part of the model uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

Rename = Callable[[str], str]
"""Function from our name of a tensor to its name in another convention. A tensor that it lacks keeps ours."""

# This maps our layers in stems, residual stages and fusions to PySlowFast's. Source: PySlowFast
# 287ec00, resnet_helper.py, stem_helper.py, video_model_builder.py. Both have the same layers in
# the same order. Layers that are not here have the same name.
_PYSLOWFAST_LAYERS = {
    "norm": "bn",
    "branch1_conv": "branch1",
    "branch1_norm": "branch1_bn",
    "branch2.conv_a": "branch2.a",
    "branch2.norm_a": "branch2.a_bn",
    "branch2.conv_b": "branch2.b",
    "branch2.norm_b": "branch2.b_bn",
    "branch2.conv_c": "branch2.c",
    "branch2.norm_c": "branch2.c_bn",
    "conv_fast_to_slow": "conv_f2s",
}
# Source: torchvision.models.ResNet.
_TORCHVISION_LAYERS = {
    "branch1_conv": "downsample.0",
    "branch1_norm": "downsample.1",
    "branch2.conv_a": "conv1",
    "branch2.norm_a": "bn1",
    "branch2.conv_b": "conv2",
    "branch2.norm_b": "bn2",
    "branch2.conv_c": "conv3",
    "branch2.norm_c": "bn3",
}
# In a SlowFast network the slow pathway has number 0 and the fast one has 1. Other networks have no
# pathways.
_PATHWAY = r"(?:multipathway_blocks\.(?P<pathway>\d)\.)?"
_STEM = re.compile(rf"blocks\.0\.{_PATHWAY}(?P<layer>conv|norm)\.(?P<end>\w+)")
_FUSION = re.compile(r"blocks\.(?P<block>\d)\.multipathway_fusion\.(?P<layer>\w+)\.(?P<end>\w+)")
_RES = re.compile(
    rf"blocks\.(?P<block>\d)\.{_PATHWAY}res_blocks\.(?P<number>\d+)\."
    r"(?P<layer>branch1_\w+|branch2\.\w+)\.(?P<end>\w+)"
)
_NONLOCAL = re.compile(
    r"blocks\.(?P<block>\d)\.nonlocals\.(?P<number>\d+)\.(?P<layer>\w+)\.(?P<end>\w+)"
)
# ResNets, then transformers.
_HEAD = re.compile(r"(?:blocks\.\d\.proj|head(?:\.1|\.proj)?)\.(?P<end>\w+)")


BODY = "net.backbone.body."
"""The beginning of the names of a detector's ResNet, which go on as torchvision's."""
BLOCK = re.compile(r"(?:^|\.)blocks\.(\d+)\.")
"""Finds the number of the block of a network in the name of a tensor."""


def head_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the classifier's tensors, of all names of a network in its order.

    The classifier is called ``head``. In pytorchvideo's networks it is the ``proj`` of the last block. A custom
    model may have a layer of this name in every block. In a detector it is all but the ResNet.
    """
    names = [*names]
    if any(name.startswith(BODY) for name in names):
        return tuple(name for name in names if not name.startswith(BODY))
    heads = [name for name in names if _HEAD.fullmatch(name)]
    layers = [name.rpartition(".")[0] for name in heads]
    chosen = next(
        (layer for layer in layers if layer.startswith("head")), layers[-1] if layers else ""
    )
    return tuple(name for name, layer in zip(heads, layers, strict=True) if layer == chosen)


def is_counter(name: str) -> bool:
    """Return whether a tensor counts batches. Batch norm with a momentum does not use the count."""
    return name.endswith("num_batches_tracked")


def nonlocal_block(name: str) -> tuple[str, str] | None:
    """Return (block of the network, number) of a tensor's non-local block, or None without one."""
    match = _NONLOCAL.fullmatch(name)
    return (match["block"], match["number"]) if match else None


def pyslowfast_names(names: Collection[str]) -> Rename:
    """Return the renaming to PySlowFast's ResNets and SlowFasts, for a model with our ``names``."""
    stage_of = _stages(names)

    def rename(name: str) -> str:
        if match := _STEM.fullmatch(name):
            return f"s1.pathway{match['pathway'] or 0}_stem.{_layer(match)}"
        if match := _FUSION.fullmatch(name):
            return f"s{int(match['block']) + 1}_fuse.{_layer(match)}"
        if match := _RES.fullmatch(name):
            place = f"pathway{match['pathway'] or 0}_res{match['number']}"
            return f"s{stage_of[match['block']]}.{place}.{_layer(match)}"
        if match := _NONLOCAL.fullmatch(name):
            return f"s{stage_of[match['block']]}.pathway0_nonlocal{match['number']}.{_layer(match)}"
        match = _HEAD.fullmatch(name)
        return f"head.projection.{match['end']}" if match else name

    return rename


def torchvision_names(names: Collection[str]) -> Rename:
    """Return the renaming to torchvision's ResNets, for a model with our ``names``."""
    stage_of = _stages(names)

    def rename(name: str) -> str:
        stem, res, head = (pattern.fullmatch(name) for pattern in (_STEM, _RES, _HEAD))
        if stem and not stem["pathway"]:
            return f"{'conv1' if stem['layer'] == 'conv' else 'bn1'}.{stem['end']}"
        if res and not res["pathway"]:
            place = f"layer{stage_of[res['block']] - 1}.{res['number']}"
            return f"{place}.{_TORCHVISION_LAYERS[res['layer']]}.{res['end']}"
        return f"fc.{head['end']}" if head else name

    return rename


# In MMAction2's ResNets a convolution and its norm are one module, and TSM wraps a convolution that shifts. All
# other names are torchvision's. Source: its models/backbones/resnet.py and resnet_tsm.py.
_MODULES = (
    (re.compile(r"\bconv(\d)\.bn\."), r"bn\1."),
    (re.compile(r"\b(conv\d)\.conv\."), r"\1."),
    (re.compile(r"\bdownsample\.conv\."), "downsample.0."),
    (re.compile(r"\bdownsample\.bn\."), "downsample.1."),
    (re.compile(r"\.net\."), "."),
)


def without_modules(name: str) -> str:
    """Turn MMAction2's name of a tensor of a ResNet into torchvision's; other names stay."""
    for pattern, ours in _MODULES:
        name = pattern.sub(ours, name)
    return name


RENAMINGS = {"PySlowFast": pyslowfast_names, "torchvision": torchvision_names}
"""Renamings by the convention that a file follows."""


def _layer(match: re.Match[str]) -> str:
    return f"{_PYSLOWFAST_LAYERS.get(match['layer'], match['layer'])}.{match['end']}"


def _stages(names: Iterable[str]) -> dict[str, int]:
    """Map the blocks that are residual stages to the numbers of these stages, which begin at 2.

    A pool between two stages is a block too, so the two numbers may differ.
    """
    blocks = {match["block"] for name in names if (match := _RES.fullmatch(name))}
    return {block: stage for stage, block in enumerate(sorted(blocks, key=int), start=2)}
