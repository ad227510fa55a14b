"""Ours and the plain way compute the same, on the same clips."""

import pytest
import torch
from plain_step import WAYS, build_plain_step, build_ways, plain_copy
from tiny import tiny_config
from torch import nn
from torchvision.ops import StochasticDepth

from mgexp.models.layers import ClipDropout, DropPath
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


def test_a_plain_copy_drops_the_paths_of_whole_clips():
    model = nn.Sequential(DropPath(0.5), ClipDropout(0.25))
    path, values = plain_copy(nn.Sequential(nn.Linear(1, 1), *model))[1:]
    assert (type(path), path.p, path.mode) == (StochasticDepth, 0.5, "row")
    assert (type(values), values.p) == (nn.Dropout, 0.25)


@pytest.mark.parametrize("method", ["sgd", "adamw"])
def test_the_plain_update_loops_over_the_parameters(method, tmp_path):
    step = build_plain_step(tiny_config(tmp_path, {"SOLVER.OPTIMIZING_METHOD": method}), CPU)
    groups = step.optimizer.param_groups
    assert {(group["foreach"], group["fused"]) for group in groups} == {(False, False)}


def test_ways_come_in_the_order_that_was_asked_for(cfg):
    with build_ways(cfg, WAYS[::-1], CPU, 1) as ways:
        assert list(ways) == ["one_group", "plain", "ours"]


@pytest.mark.slow
def test_the_compiled_way_has_the_losses_of_ours(tmp_path, monkeypatch):
    """torch traces the whole network but makes no code of its own, which would take minutes."""
    plain_compile, modes = nn.Module.compile, []

    def trace(module, *, mode, **options):
        modes.append(mode)
        plain_compile(module, backend="eager", **options)

    monkeypatch.setattr(nn.Module, "compile", trace)
    cfg = tiny_config(tmp_path, {"SOLVER.BASE_LR": 0.1})
    with build_ways(cfg, ["ours", "compiled"], CPU, 1) as ways:
        found = [torch.tensor(losses(way(SHAPE))) for way in ways.values()]
    assert torch.allclose(*found, rtol=1e-4)
    assert modes == ["default"]


def test_the_plain_way_has_the_precision_of_the_row(tmp_path):
    """The losses of the first step differ from fp32 as those of ours do: by the rounding of bf16."""
    low = tiny_config(tmp_path, {"TRAIN.PRECISION": "bf16", "MODEL.DROPOUT_RATE": 0.0})
    exact = tiny_config(tmp_path, {"TRAIN.PRECISION": "fp32", "MODEL.DROPOUT_RATE": 0.0})
    found = []
    for cfg in (low, exact):
        with build_ways(cfg, ["plain"], CPU, 1) as ways:
            found += losses(ways["plain"](SHAPE), 1)
    assert found[0] != found[1]
    assert found[0] == pytest.approx(found[1], rel=0.02)


def losses(step, num_steps=3):
    return [float(step()) for _ in range(num_steps)]
