#!/usr/bin/env python3
"""Check networks of other libraries, and ours, at the shapes of a schedule: python benchmarks/known_networks.py

The table is that of docs/own_model.md. Weights are random, since only the positions matter. It takes some minutes
and up to 6 GB of memory. Exit 0.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import nn

from mgexp.config.load import config_of
from mgexp.models.build import build_model
from mgexp.multigrid import ShapeCheck, check_shapes
from mgexp.options import ToolParser

SHAPES = ((4, 112), (8, 160), (8, 224), (16, 224))
"""Frames and crop. 160 = 224 / √2, rounded to patches of 16 pixels, and to 32, which MViT needs."""


def torchvision(name: str) -> nn.Module:
    """Make a video network of torchvision."""
    from torchvision.models import video

    made: nn.Module = getattr(video, name)(weights=None)
    return made


def x3d() -> nn.Module:
    """Make pytorchvideo's X3D-S for clips of 16 frames of 224 pixels."""
    from pytorchvideo.models.x3d import create_x3d

    made: nn.Module = create_x3d(input_clip_length=16, input_crop_size=224)
    return made


def ours(name: str, **vit: object) -> nn.Module:
    """Make one of our networks."""
    values = {"MODEL.MODEL_NAME": name, "DATA.NUM_FRAMES": 16, "DATA.TRAIN_CROP_SIZE": 224}
    return build_model(config_of({**values, **{f"VIT.{key}": value for key, value in vit.items()}}))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "torchvision swin3d_t": lambda: torchvision("swin3d_t"),
    "torchvision mvit_v2_s": lambda: torchvision("mvit_v2_s"),
    "torchvision r3d_18": lambda: torchvision("r3d_18"),
    "torchvision s3d": lambda: torchvision("s3d"),
    "pytorchvideo X3D-S": x3d,
    "SlowFast R50": lambda: ours("SlowFast"),
    "I3D R50": lambda: ours("I3D"),
    "MViTv2-S": lambda: ours("MViT"),
    "X3D-S": lambda: ours("X3D"),
    "ViT-S, learned positions": lambda: ours("ViT"),
    "ViT-S, rotary positions": lambda: ours("ViT", POSITIONS="rotary"),
    "ViT-S, V-JEPA 2's positions": lambda: ours("ViT", POSITIONS="vjepa2"),
}


def line(name: str, checks: Sequence[ShapeCheck], seconds: float) -> str:
    """Write what was found as a line of a Markdown table."""
    kinds = {kind for one in checks for kind in one.positions} - {"none"}
    cells = [
        f"WRONG: {one.problem}" if one.problem else f"right ({one.deviation:.1%} away)"
        if kinds else "right"
        for one in checks
    ]  # fmt: skip
    return f"| {name} | {' and '.join(sorted(kinds)) or 'none'} | {' | '.join(cells)} | {seconds:.0f} s |"


def main(arguments: Sequence[str]) -> int:
    parser = ToolParser(__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=NETWORKS, default=list(NETWORKS), metavar="NAME"
    )
    options = parser.parse_args(arguments)
    heads = [f"{frames} × {crop}²" for frames, crop in SHAPES]
    print(f"| network | positions | {' | '.join(heads)} | took |")
    print("|---" * (len(heads) + 3) + "|")
    for name in options.only:
        torch.manual_seed(0)
        start = time.perf_counter()
        checks = check_shapes(NETWORKS[name](), SHAPES)
        print(line(name, checks, time.perf_counter() - start), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
