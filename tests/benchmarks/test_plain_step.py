"""Ours and the plain way compute the same, on the same clips."""

from dataclasses import replace

import pytest
import torch
from plain_step import build_plain_step, build_ways
from tiny import tiny_config

from mgexp.multigrid.schedule import StepShape
from mgexp.plan.ways import build_training_step

CPU = torch.device("cpu")
SHAPE = StepShape(frames=4, crop=16, clips=4, num_bn_groups=2)
DETECTOR = {
    "MODEL.MODEL_NAME": "RetinaNet", "MODEL.LOSS_FUNC": "detection", "DATA.FORMAT": "coco", "DATA.NUM_FRAMES": 1,
    "RESNET.DEPTH": 18, "RESNET.WIDTH_PER_GROUP": 16, "DETECTOR.CHANNELS": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"SOLVER.HEAD_LR_FACTOR": 1000.0, "SOLVER.CLIP_GRAD_L2NORM": 0.1},
        {"SOLVER.OPTIMIZING_METHOD": "adamw"},
    ],
)
def test_the_plain_way_has_the_losses_of_ours_in_one_group(changes, tmp_path):
    """Also after updates, so that these are the same too. Without dropout, whose masks are drawn in other ways."""
    cfg = tiny_config(tmp_path, {"MODEL.DROPOUT_RATE": 0.0, **changes})
    with build_ways(cfg, ["one_group", "plain"], CPU, 1) as ways:
        found = {name: torch.tensor(losses(way(SHAPE))) for name, way in ways.items()}
    assert torch.allclose(found["one_group"], found["plain"], rtol=1e-4)
    assert len(set(found["plain"].tolist())) == 3


def test_a_detector_has_a_plain_way(tmp_path):
    cfg = tiny_config(tmp_path, DETECTOR)
    shape = StepShape(frames=1, crop=64, clips=4, num_bn_groups=1)
    ours, plain = (
        losses(build(cfg, CPU)(shape)) for build in (build_training_step, build_plain_step)
    )
    assert ours == pytest.approx(plain, rel=1e-4)


def test_one_group_is_not_cut_into_parts(tmp_path):
    """A BN group cannot be cut, so TRAIN.MAX_CLIPS_PER_GPU would be too few."""
    cfg = tiny_config(tmp_path, {"TRAIN.MAX_CLIPS_PER_GPU": 2})
    one = replace(SHAPE, num_bn_groups=1)
    with build_ways(cfg, ["ours", "one_group"], CPU, 1) as ways:
        with pytest.raises(ValueError, match=r"4 clips .* cannot be cut"):
            ways["ours"](one)()
        whole = build_training_step(tiny_config(tmp_path), CPU)
        assert ways["one_group"](SHAPE)().item() == whole(one)().item()


def losses(step, num_steps=3):
    return [float(step()) for _ in range(num_steps)]
