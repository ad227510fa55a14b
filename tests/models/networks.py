"""Small networks that several tests build."""

import torch
from torch import Tensor

from mgexp.config.keys import VitKeys
from mgexp.config.load import config_of
from mgexp.models.build import build_slowfast
from mgexp.models.resnet import SlowFast
from mgexp.models.vit import VideoTransformer

TIMM = {"patches.": "patch_embed.proj.", "qkv": "attn.qkv", ".out.": ".attn.proj."}
TIMM |= {"mlp.0": "mlp.fc1", "mlp.2": "mlp.fc2"}
"""What timm calls the parts of our transformer."""


def video_transformer(full: tuple[int, int], **changes) -> VideoTransformer:
    """Two blocks on tubelets of 2 frames of 16 x 16 pixels without any dropping, but for ``changes``."""
    keys = VitKeys(**{"DEPTH": 2, "MLP_RATIO": 2.0, **changes})
    return VideoTransformer(keys, num_classes=5, full=full, dropout=0.0)


def slowfast(width: int = 64, num_classes: int = 400, **changes) -> SlowFast:
    """SlowFast 8x8 R50, but for ``changes``. No gamma is 0, so that every block counts."""
    keys = {"RESNET.WIDTH_PER_GROUP": width, "MODEL.NUM_CLASSES": num_classes, **changes}
    return build_slowfast(config_of({"RESNET.ZERO_INIT_FINAL_BN": False, **keys}))


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
