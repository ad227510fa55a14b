"""I3D against PySlowFast's counts (tests/golden/models.json) and pytorchvideo's own network."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fvcore.nn import FlopCountAnalysis
from torch import nn

from mgexp.models.i3d import i3d

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "models.json").read_text())
NAME = "I3D_8x8_R50"
QUICK_SHAPES = ["2x112", "8x112"]
SLOW_SHAPES = [shape for shape in GOLDEN["gmacs"][NAME] if shape not in QUICK_SHAPES]


def build(**changes) -> nn.Module:
    """The 8x8 R50 network on Kinetics-400, but for ``changes``."""
    arguments = {"num_classes": 400, "depth": 50, "dropout": 0.5, "norm": nn.BatchNorm3d}
    return i3d(**{**arguments, **changes})


def build_on_meta(**changes) -> nn.Module:
    """The same without weights: at once, however large."""
    with torch.device("meta"):
        return build(**changes)


def test_number_of_parameters_is_that_of_the_released_configuration():
    assert sum(p.numel() for p in build_on_meta().parameters()) == GOLDEN["params"][NAME]


def check_gmacs(shape: str) -> None:
    model = build_on_meta().to_empty(device="cpu").eval()
    frames, crop = map(int, shape.split("x"))
    macs = FlopCountAnalysis(model, torch.zeros(1, 3, frames, crop, crop)).total()
    assert macs / 1e9 == pytest.approx(GOLDEN["gmacs"][NAME][shape], rel=0.002)


@pytest.mark.parametrize("shape", QUICK_SHAPES)
def test_gmacs_are_those_of_the_released_configuration(shape):
    check_gmacs(shape)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SLOW_SHAPES)
def test_gmacs_at_every_other_shape(shape):
    check_gmacs(shape)


@pytest.mark.parametrize("frames", [8, 4, 2])
@pytest.mark.parametrize("crop", [64, 45, 32])  # 224, 158, 112 pixels, scaled down
def test_forward_and_backward_at_every_shape(frames, crop):
    torch.manual_seed(0)
    model = build(width=8, num_classes=5).train()
    logits = model(torch.randn(2, 3, frames, crop, crop))
    nn.functional.cross_entropy(logits, torch.tensor([1, 3])).backward()
    assert logits.shape == (2, 5)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_depth_101_takes_a_clip():
    model = build_on_meta(depth=101, num_classes=5).eval()
    assert model(torch.zeros(1, 3, 2, 32, 32, device="meta")).shape == (1, 5)


def test_state_dict_is_pytorchvideos_own():
    from pytorchvideo.models.hub.resnet import i3d_r50

    with torch.device("meta"):
        theirs = i3d_r50().state_dict()
    ours = build_on_meta().state_dict()
    assert [(key, value.shape) for key, value in ours.items()] == [
        (key, value.shape) for key, value in theirs.items()
    ]


def test_logits_are_those_of_pytorchvideos_network_with_its_fixed_head():
    from pytorchvideo.models.hub.resnet import i3d_r50

    torch.manual_seed(0)
    ours = build(width=8, num_classes=5).eval()
    for parameter in ours.parameters():  # no gamma is 0, so that every block counts
        nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    theirs = i3d_r50(stem_dim_out=8, model_num_class=5).eval()
    theirs.load_state_dict(ours.state_dict())
    clips = torch.randn(1, 3, 8, 224, 224)  # the shape that the fixed head takes
    with torch.no_grad():
        torch.testing.assert_close(ours(clips), theirs(clips))


@pytest.mark.parametrize("depth", [18, 152])
def test_depths_without_a_released_configuration_are_refused(depth):
    with pytest.raises(ValueError, match=rf"depth {depth} is unknown; .* \(50, 101\)"):
        build(depth=depth)


@pytest.mark.slow
def test_pytorchvideo_is_imported_late_and_silently():
    """In a process of its own; the legal depths need no import of seconds, and warnings are errors."""
    program = (
        "import sys, torch; from mgexp.models.i3d import DEPTHS, i3d\n"
        "assert 'pytorchvideo' not in sys.modules\n"
        "with torch.device('meta'):\n"
        "    i3d(num_classes=2, depth=50, dropout=0.5, norm=torch.nn.BatchNorm3d)\n"
    )
    command = [sys.executable, "-W", "error::FutureWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
