"""PySlowFast's counts of its released configurations, and how a network of ours is held against them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from fvcore.nn import FlopCountAnalysis
from torch import nn

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "models.json").read_text())


def num_params(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def check_gmacs(on_meta: nn.Module, released: str, shape: str) -> None:
    """Within 0.2 % at frames x crop; ``on_meta`` gets memory, but no weights."""
    model = on_meta.to_empty(device="cpu").eval()
    frames, crop = map(int, shape.split("x"))
    macs = FlopCountAnalysis(model, torch.zeros(1, 3, frames, crop, crop)).total()
    assert macs / 1e9 == pytest.approx(GOLDEN["gmacs"][released][shape], rel=0.002)
