"""Parameters and multiply-accumulates of networks against PySlowFast's counts of its released configurations."""

import json
from pathlib import Path

import pytest
import torch
from fvcore.nn import FlopCountAnalysis
from torch import nn

from mgexp.config.load import config_of
from mgexp.models.build import build_on_meta

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "models.json").read_text())
NONLOCAL = {"NONLOCAL.LOCATION": ((), (1, 3), (1, 3, 5), ())}
# What each differs in from SlowFast 8x8 R50 on Kinetics-400, which our defaults are.
RELEASED = {
    "SLOWFAST_8x8_R50": {},
    "SLOWFAST_4x16_R50": {"SLOWFAST.ALPHA": 8, "SLOWFAST.FUSION_KERNEL_SZ": 5},
    "SSv2_SLOWFAST_16x8_R50": {"MODEL.NUM_CLASSES": 174},
    "Charades_SLOWFAST_16x8_R50": {"MODEL.NUM_CLASSES": 157},
    "I3D_8x8_R50": {"MODEL.MODEL_NAME": "I3D"},
    "C2D_8x8_R50": {"MODEL.MODEL_NAME": "C2D"},
    "SLOW_8x8_R50": {"MODEL.MODEL_NAME": "Slow"},
    "SLOW_4x16_R50": {"MODEL.MODEL_NAME": "Slow"},
    "I3D_NLN_8x8_R50": {"MODEL.MODEL_NAME": "I3D", **NONLOCAL},
    "C2D_NLN_8x8_R50": {"MODEL.MODEL_NAME": "C2D", **NONLOCAL},
}
QUICK = {
    "SLOWFAST_8x8_R50": ["8x112"],
    "SLOWFAST_4x16_R50": ["16x112"],
    "SSv2_SLOWFAST_16x8_R50": ["16x158"],
    "I3D_8x8_R50": ["2x112", "8x112"],
    "C2D_8x8_R50": ["2x112", "8x112"],
    "SLOW_8x8_R50": ["2x112", "8x112"],
    "SLOW_4x16_R50": ["1x112", "2x112"],
    "I3D_NLN_8x8_R50": ["2x112", "4x158"],
}
"""The shapes that are counted without --slow."""


def on_meta(**values) -> nn.Module:
    return build_on_meta(config_of(values))


def num_params(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", RELEASED)
def test_number_of_parameters_is_that_of_the_released_configuration(name):
    assert num_params(on_meta(**RELEASED[name])) == GOLDEN["params"][name]


def test_shifts_cost_no_parameters():
    model = on_meta(**{"MODEL.MODEL_NAME": "TSM"})
    assert num_params(model) == GOLDEN["params"]["C2D_8x8_R50"] == 24_327_632


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        pytest.param(name, shape, marks=() if shape in QUICK.get(name, ()) else pytest.mark.slow)
        for name in RELEASED
        for shape in GOLDEN["gmacs"][name]
    ],
)
def test_gmacs_are_those_of_the_released_configuration(name, shape):
    """Within 0.2 % at frames x crop. The model gets memory, but no weights."""
    model = on_meta(**RELEASED[name]).to_empty(device="cpu").eval()
    frames, crop = map(int, shape.split("x"))
    macs = FlopCountAnalysis(model, torch.zeros(1, 3, frames, crop, crop)).total()
    assert macs / 1e9 == pytest.approx(GOLDEN["gmacs"][name][shape], rel=0.002)
