"""Every model of the paper, built from keys as a run builds it, at every shape of long+short."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from mgexp.config.load import load_config
from mgexp.models.build import build_model, build_problems
from mgexp.models.cost import schedule_shapes
from mgexp.multigrid.batchnorm import set_num_groups
from mgexp.train.setup import build_row_schedule

ROW = Path("experiments/main/k400_slowfast_8x8_r50/long_short.yaml")
EIGHT_FRAMES = "DATA.NUM_FRAMES 8 DATA.SAMPLING_RATE 8"
NON_LOCAL = "NONLOCAL.LOCATION [[],[1,3],[1,3,5],[]]"
MODELS = {
    "I3D": f"MODEL.MODEL_NAME I3D {EIGHT_FRAMES}",
    "I3D non-local": f"MODEL.MODEL_NAME I3D {EIGHT_FRAMES} {NON_LOCAL}",
    "C2D": f"MODEL.MODEL_NAME C2D {EIGHT_FRAMES}",
    "Slow": f"MODEL.MODEL_NAME Slow {EIGHT_FRAMES}",
    "SlowFast 4x16": "SLOWFAST.ALPHA 8 SLOWFAST.FUSION_KERNEL_SZ 5",
    "SlowFast 8x8": "",
    "SlowFast 16x8": "DATA.NUM_FRAMES 64",
    "TSM": f"MODEL.MODEL_NAME TSM {EIGHT_FRAMES}",
}
SMALL = (
    "RESNET.WIDTH_PER_GROUP 8 DATA.TRAIN_CROP_SIZE 64 DATA.TEST_CROP_SIZE 64 "
    "DATA.TRAIN_JITTER_SCALES [64,80] MODEL.NUM_CLASSES 5"
)


def check_all_shapes(cfg, num_groups: int) -> None:
    """Logits and gradients of ``num_groups`` BN groups of two clips at each shape."""
    model = build_model(cfg).train()
    set_num_groups(model, num_groups)
    shapes = schedule_shapes(build_row_schedule(cfg, 10**6))
    assert len(shapes) == 8
    for frames, crop in sorted(shapes):
        batch = torch.randn(2 * num_groups, 3, frames, crop, crop)
        batch = batch.contiguous(memory_format=torch.channels_last_3d)
        model.zero_grad()
        logits = model(batch)
        F.cross_entropy(logits, torch.arange(2 * num_groups)).backward()
        assert logits.shape == (2 * num_groups, cfg.MODEL.NUM_CLASSES)
        assert all(torch.isfinite(p.grad).all() for p in model.parameters()), (frames, crop)


@pytest.mark.parametrize("name", MODELS)
def test_small_forward_and_backward_at_every_shape(name):
    check_all_shapes(load_config(ROW, f"{MODELS[name]} {SMALL}".split()), num_groups=2)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [50, 101])
@pytest.mark.parametrize("name", MODELS)
def test_forward_and_backward_at_full_width_at_every_shape(name, depth):
    check_all_shapes(
        load_config(ROW, [*MODELS[name].split(), "RESNET.DEPTH", str(depth)]), num_groups=1
    )


@pytest.mark.parametrize("depth", [50, 101])
@pytest.mark.parametrize("name", MODELS)
def test_no_shape_of_a_released_configuration_is_a_problem(name, depth):
    cfg = load_config(ROW, [*MODELS[name].split(), "RESNET.DEPTH", str(depth)])
    assert build_problems(cfg, schedule_shapes(build_row_schedule(cfg, 10**6))) == []


def test_a_shape_that_a_model_cannot_take_is_a_problem():
    cfg = load_config(ROW, f"{MODELS['I3D']} {SMALL}".split())
    (problem,) = build_problems(cfg, [(1, 32), (2, 32)])
    assert problem.startswith("I3D cannot take clips of 1 frames of 32 x 32 pixels: ")


def test_a_model_that_does_not_exist_is_a_problem():
    cfg = load_config(ROW, [*MODELS["I3D"].split(), "NONLOCAL.LOCATION", "[[],[7],[],[]]"])
    (problem,) = build_problems(cfg, [])
    assert "no non-local block can follow block 7 of res3" in problem
