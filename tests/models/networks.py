"""Small networks that several tests build."""

import torch
from torch import Tensor

from mgexp.models.vit import VideoTransformer

TIMM = {"patches.": "patch_embed.proj.", "qkv": "attn.qkv", ".out.": ".attn.proj."}
TIMM |= {"mlp.0": "mlp.fc1", "mlp.2": "mlp.fc2"}
"""What timm calls the parts of our transformer."""


def video_transformer(**changes) -> VideoTransformer:
    """Two blocks on tubelets of 2 frames of 16 x 16 pixels without any dropping, but for ``changes``."""
    settings = {"num_classes": 5, "depth": 2, "mlp_ratio": 2.0, "tubelet": (2, 16, 16)}
    settings |= {"positions": "learned", "has_class_token": False, "drop_path": 0.0, "dropout": 0.0}
    return VideoTransformer(**{**settings, **changes})


def clips(shape: tuple[int, int], num: int = 2) -> Tensor:
    """Random clips of (frames, crop)."""
    frames, crop = shape
    return torch.randn(num, 3, frames, crop, crop, generator=torch.Generator().manual_seed(1))


def videomae_tensors(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our transformer as VideoMAE's code writes it: timm's names, without positions or biases of keys."""
    found = {}
    for name, value in ours.items():
        theirs = name
        for own, other in TIMM.items():
            theirs = theirs.replace(own, other)
        if name.endswith("qkv.bias"):
            query, _, bias = value.chunk(3)
            stem = theirs.removesuffix("qkv.bias")
            found |= {f"{stem}q_bias": query, f"{stem}v_bias": bias}
        elif name != "positions":
            found[theirs] = value
    return found
