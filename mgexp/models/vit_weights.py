"""Published weights of vision transformers under the names and in the layout of our networks.

A position of the class token is added to the class token itself, which gives the same sum. Positions of an image
are those of a clip with one frame; `weights.fit_weights` stretches them over the grid of the network. Tensors that
serve another task, such as a decoder, keep their names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]
VIDEOMAE_CLIP = (16, 224, 224)
"""Frames, height and width of VideoMAE's clips. Its files hold no positions, since these are sines."""


def sinusoids(grid: tuple[int, int, int], width: int) -> Tensor:
    """Return VideoMAE's fixed positions (1, width, *grid): a sine or cosine of the number of the token."""
    places = torch.arange(grid[0] * grid[1] * grid[2], dtype=torch.float64)[:, None]
    # In float32, the table of 1,568 tokens would be wrong by up to 6e-5.
    channels = torch.arange(width, dtype=torch.float64)
    angles = places / 10000 ** (2 * (channels // 2) / width)
    table = torch.where(channels % 2 == 0, angles.sin(), angles.cos()).float()
    return table.T.reshape(1, width, *grid)


def _with_positions(
    tensors: dict[str, Tensor], table: Tensor | None, token: Tensor | None
) -> dict[str, Tensor]:
    """Add positions (1, places, C) of an image, of which the first may be that of the class token."""
    if token is not None:
        tensors["class_token"] = token if table is None else token + table[:, :1]
    if table is None:
        kernel = tensors["patches.weight"].shape[2:]
        if len(kernel) < len(VIDEOMAE_CLIP):
            raise ValueError("it holds no positions")
        frames, height, width = (
            size // step for size, step in zip(VIDEOMAE_CLIP, kernel, strict=True)
        )
        tensors["positions"] = sinusoids((frames, height, width), tensors["norm.weight"].numel())
        return tensors
    places = table[:, 1:] if token is not None else table
    side = round(places.shape[1] ** 0.5)
    if side**2 != places.shape[1]:
        raise ValueError(f"its {places.shape[1]} positions are not those of a square image")
    tensors["positions"] = places.transpose(1, 2).reshape(1, -1, 1, side, side)
    return tensors


def _renamed(tensors: Tensors, rules: Mapping[str, str]) -> dict[str, Tensor]:
    """Rename by the first rule that fits the whole name; other names stay, for the message about them."""
    renamed = {}
    for name, tensor in tensors.items():
        fits = ((re.fullmatch(pattern, name), ours) for pattern, ours in rules.items())
        renamed[next((match.expand(ours) for match, ours in fits if match), name)] = tensor
    return renamed


TIMM_NAMES = {
    r"patch_embed\.proj\.(\w+)": r"patches.\1",
    r"blocks\.(\d+)\.(norm[12])\.(\w+)": r"blocks.\1.\2.\3",
    r"blocks\.(\d+)\.attn\.qkv\.(\w+)": r"blocks.\1.qkv.\2",
    r"blocks\.(\d+)\.attn\.proj\.(\w+)": r"blocks.\1.out.\2",
    r"blocks\.(\d+)\.attn\.([qv])_bias": r"blocks.\1.\2_bias",
    r"blocks\.(\d+)\.mlp\.fc1\.(\w+)": r"blocks.\1.mlp.0.\2",
    r"blocks\.(\d+)\.mlp\.fc2\.(\w+)": r"blocks.\1.mlp.2.\2",
    r"fc_norm\.(\w+)": r"norm.\1",
}
"""timm's names and ours. The released code of VideoMAE and of V-JEPA 2 has timm's names too."""


def from_timm(tensors: Tensors) -> dict[str, Tensor]:
    """Convert timm's ViT, or VideoMAE's own files, whose queries, keys and values have two biases.

    A file of VideoMAE's pre-training gives its encoder.
    """
    converted = _renamed(
        {name.removeprefix("encoder."): value for name, value in tensors.items()}, TIMM_NAMES
    )
    # The bias of keys is 0: it would change no difference of two logits.
    for name in [name for name in converted if name.endswith(".q_bias")]:
        query, value = converted.pop(name), converted.pop(name.replace("q_bias", "v_bias"))
        bias = torch.cat([query, torch.zeros_like(query), value])
        converted[name.replace("q_bias", "qkv.bias")] = bias
    return _with_positions(
        converted, converted.pop("pos_embed", None), converted.pop("cls_token", None)
    )


def from_torchvision(tensors: Tensors) -> dict[str, Tensor]:
    layer = r"encoder\.layers\.encoder_layer_(\d+)\."
    converted = _renamed(
        tensors,
        {
            r"conv_proj\.(\w+)": r"patches.\1",
            layer + r"ln_([12])\.(\w+)": r"blocks.\1.norm\2.\3",
            layer + r"self_attention\.in_proj_(\w+)": r"blocks.\1.qkv.\2",
            layer + r"self_attention\.out_proj\.(\w+)": r"blocks.\1.out.\2",
            layer + r"mlp\.0\.(\w+)": r"blocks.\1.mlp.0.\2",
            layer + r"mlp\.3\.(\w+)": r"blocks.\1.mlp.2.\2",
            r"encoder\.ln\.(\w+)": r"norm.\1",
            r"heads\.head\.(\w+)": r"head.\1",
        },
    )
    return _with_positions(
        converted, converted.pop("encoder.pos_embedding"), converted.pop("class_token")
    )


def from_transformers(tensors: Tensors) -> dict[str, Tensor]:
    """Convert VideoMAE of the library transformers: its pre-training, its encoder alone, or with a classifier."""
    layer = r"encoder\.layer\.(\d+)\."
    attention = layer + r"attention\.attention\."
    converted = _renamed(
        {name.removeprefix("videomae."): value for name, value in tensors.items()},
        {
            r"embeddings\.patch_embeddings\.projection\.(\w+)": r"patches.\1",
            attention + r"(query|key|value)\.weight": r"blocks.\1.\2.weight",
            # The first is in published files, the second in those of newer versions.
            attention + r"([qv])_bias": r"blocks.\1.\2_bias",
            attention + r"(q|v)(?:uery|alue)\.bias": r"blocks.\1.\2_bias",
            layer + r"attention\.output\.dense\.(\w+)": r"blocks.\1.out.\2",
            layer + r"intermediate\.dense\.(\w+)": r"blocks.\1.mlp.0.\2",
            layer + r"output\.dense\.(\w+)": r"blocks.\1.mlp.2.\2",
            layer + r"layernorm_before\.(\w+)": r"blocks.\1.norm1.\2",
            layer + r"layernorm_after\.(\w+)": r"blocks.\1.norm2.\2",
            r"layernorm\.(\w+)": r"norm.\1",
            r"classifier\.(\w+)": r"head.\1",
        },
    )
    return from_timm(_with_joint_layers(converted))


def from_vjepa2(tensors: Tensors) -> dict[str, Tensor]:
    """Convert the encoder of V-JEPA 2 of the library transformers, with or without a classifier."""
    layer = r"encoder\.layer\.(\d+)\."
    converted = _renamed(
        {name.removeprefix("vjepa2."): value for name, value in tensors.items()},
        {
            r"encoder\.embeddings\.patch_embeddings\.proj\.(\w+)": r"patches.\1",
            layer + r"norm([12])\.(\w+)": r"blocks.\1.norm\2.\3",
            layer + r"attention\.(query|key|value)\.(\w+)": r"blocks.\1.\2.\3",
            layer + r"attention\.proj\.(\w+)": r"blocks.\1.out.\2",
            layer + r"mlp\.fc1\.(\w+)": r"blocks.\1.mlp.0.\2",
            layer + r"mlp\.fc2\.(\w+)": r"blocks.\1.mlp.2.\2",
            r"encoder\.layernorm\.(\w+)": r"norm.\1",
        },
    )
    return _with_joint_layers(converted)


def from_vjepa2_release(tensors: Tensors) -> dict[str, Tensor]:
    """Convert the encoder of V-JEPA 2's own files. Their table of positions is not used there either."""
    encoder = {name.removeprefix("backbone."): value for name, value in tensors.items()}
    return _renamed(encoder, TIMM_NAMES)


def from_pyslowfast_mvit(tensors: Tensors) -> dict[str, Tensor]:
    """Convert PySlowFast's MViTv2 to the names of torchvision's, which ours has."""
    block = r"blocks\.(\d+)\."
    converted = _renamed(
        tensors,
        {
            r"patch_embed\.proj\.(\w+)": r"conv_proj.\1",
            r"cls_token": r"pos_encoding.class_token",
            block + r"attn\.proj\.(\w+)": r"blocks.\1.attn.project.0.\2",
            block + r"attn\.pool_([qkv])\.weight": r"blocks.\1.attn.pool_\2.pool.weight",
            block + r"attn\.norm_([qkv])\.(\w+)": r"blocks.\1.attn.pool_\2.norm_act.0.\3",
            block + r"proj\.(\w+)": r"blocks.\1.project.\2",
            block + r"mlp\.fc1\.(\w+)": r"blocks.\1.mlp.0.\2",
            block + r"mlp\.fc2\.(\w+)": r"blocks.\1.mlp.3.\2",
            r"head\.projection\.(\w+)": r"head.1.\1",
        },
    )
    converted["pos_encoding.class_token"] = converted["pos_encoding.class_token"].flatten()
    return converted


def _with_joint_layers(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    for name in [name for name in tensors if re.match(r"blocks\.\d+\.query\.", name)]:
        parts = [tensors.pop(name.replace("query", part)) for part in ("query", "key", "value")]
        tensors[name.replace("query", "qkv")] = torch.cat(parts)
    return tensors


VJEPA2 = ("transformers' V-JEPA 2", "V-JEPA 2")
"""The conventions of V-JEPA 2: the library's, and those of its own files."""
CONVERSIONS: dict[str, tuple[tuple[str, ...], Callable[[Tensors], dict[str, Tensor]]]] = {
    "PySlowFast's MViTv2": (("blocks.0.attn.norm_k.",), from_pyslowfast_mvit),
    "timm or VideoMAE": (("patch_embed.",), from_timm),
    "VideoMAE's pre-training": (("encoder.patch_embed.",), from_timm),
    "torchvision's ViT": (("encoder.layers.encoder_layer_0.",), from_torchvision),
    "transformers' VideoMAE": (("videomae.", "embeddings.patch_embeddings."), from_transformers),
    VJEPA2[0]: (("encoder.embeddings.", "vjepa2.encoder.embeddings."), from_vjepa2),
    VJEPA2[1]: (("backbone.patch_embed.",), from_vjepa2_release),
}
"""By convention: a beginning that some name has in every file, and the conversion to our names. The first
that fits is taken: PySlowFast's MViTv2 has timm's names beside its own."""
OTHER_TASKS = {
    "timm or VideoMAE": ("class_token",),
    "torchvision's ViT": ("class_token",),
    "VideoMAE's pre-training": ("decoder.", "encoder_to_decoder.", "mask_token"),
    "transformers' VideoMAE": ("decoder.", "encoder_to_decoder.", "mask_token"),
    VJEPA2[0]: ("predictor.", "pooler.", "classifier."),
    VJEPA2[1]: ("pos_embed",),
}
"""Beginnings of names of what our network may do without. A network that takes the mean of the tokens has no class
token. The others serve another task: V-JEPA 2's classifier belongs to its pooler, and its networks do not use the
table of positions in its files."""
