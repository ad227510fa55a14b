"""Ours and the plain way compute the same, on the same clips."""

import pytest
import torch
from plain_step import build_ways
from tiny import tiny_config

from mgexp.multigrid.schedule import StepShape

CPU = torch.device("cpu")
SHAPE = StepShape(frames=4, crop=16, clips=4, num_bn_groups=2)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"SOLVER.HEAD_LR_FACTOR": 1000.0, "SOLVER.CLIP_GRAD_L2NORM": 0.1},
        {"SOLVER.OPTIMIZING_METHOD": "adamw"},
        # Neither cuts a mini-batch into parts, because a BN group cannot be cut.
        {"TRAIN.MAX_CLIPS_PER_GPU": 2},
    ],
)
def test_the_plain_way_has_the_losses_of_ours_in_one_group(changes, tmp_path):
    """Also after updates, so that these are the same too. Without dropout, whose masks are drawn in other ways."""
    cfg = tiny_config(tmp_path, {"MODEL.DROPOUT_RATE": 0.0, **changes})
    with build_ways(cfg, ["one_group", "plain"], CPU, 1) as ways:
        found = {name: torch.tensor(losses(way(SHAPE))) for name, way in ways.items()}
    assert torch.allclose(found["one_group"], found["plain"], rtol=1e-4)
    assert len(set(found["plain"].tolist())) == 3


def losses(step, num_steps=3):
    return [float(step()) for _ in range(num_steps)]
