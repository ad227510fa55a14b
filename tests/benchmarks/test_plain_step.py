"""Ours and the plain way compute the same, on the same clips."""

import pytest
import torch
from plain_step import build_plain_step, build_ways, plain_copy
from tiny import tiny_config
from torch import nn

from mgexp.multigrid.batchnorm import GroupedBatchNorm3d
from mgexp.multigrid.schedule import StepShape
from mgexp.plan.ways import build_training_step

CPU = torch.device("cpu")
SHAPE = StepShape(frames=4, crop=16, clips=4, num_bn_groups=2)


@pytest.fixture
def cfg(tmp_path):
    return tiny_config(tmp_path, {"SOLVER.BASE_LR": 0.1})


def test_a_plain_copy_has_the_same_weights_in_plain_modules(cfg):
    model = build_training_step(cfg, CPU).step.model
    plain = plain_copy(model)
    assert not any(isinstance(module, GroupedBatchNorm3d) for module in plain.modules())
    kinds = {type(m) for m in plain.modules() if isinstance(m, nn.Dropout)}
    assert kinds == {nn.Dropout}
    norms = [sum(isinstance(m, nn.BatchNorm3d) for m in one.modules()) for one in (model, plain)]
    assert norms[0] == norms[1] > 0
    assert all(parameter.is_contiguous() for parameter in plain.parameters())
    ours, theirs = model.state_dict(), plain.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not {p.data_ptr() for p in plain.parameters()} & {
        p.data_ptr() for p in model.parameters()
    }


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


@pytest.mark.parametrize("method", ["sgd", "adamw"])
def test_the_plain_update_loops_over_the_parameters(method, tmp_path):
    step = build_plain_step(tiny_config(tmp_path, {"SOLVER.OPTIMIZING_METHOD": method}), CPU)
    groups = step.optimizer.param_groups
    assert {(group["foreach"], group["fused"]) for group in groups} == {(False, False)}


def losses(step, num_steps=3):
    return [float(step()) for _ in range(num_steps)]
