"""The network of a row: every row starts from the same weights, and no phase changes what is decayed."""

import pytest
import torch
from tiny import tiny_config

from mgexp.models.build import build_model
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d, set_num_groups
from mgexp.optim.build import build_groups
from mgexp.train.setup import build_row_schedule

BASELINE = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False}
I3D = {"MODEL.MODEL_NAME": "I3D", "RESNET.DEPTH": 50}


@pytest.mark.parametrize("architecture", [{}, I3D])
def test_baseline_and_long_short_start_from_identical_weights(architecture, tmp_path):
    torch.manual_seed(123)  # must not matter
    one = build_model(tiny_config(tmp_path, {**architecture, **BASELINE})).state_dict()
    two = build_model(tiny_config(tmp_path, architecture)).state_dict()
    assert one.keys() == two.keys()
    assert [name for name in one if not torch.equal(one[name], two[name])] == []


def test_another_seed_gives_other_weights(tmp_path):
    one = build_model(tiny_config(tmp_path)).state_dict()
    two = build_model(tiny_config(tmp_path, {"RNG_SEED": 1})).state_dict()
    name = next(name for name in one if name.endswith("conv.weight"))
    assert not torch.equal(one[name], two[name])


def norms_of(model):
    return [module for module in model.modules() if isinstance(module, GroupedBatchNorm3d)]


def test_zeros_and_decay_are_the_same_in_every_phase(tmp_path):
    cfg = tiny_config(tmp_path)
    model = build_model(cfg)
    zeros = [name for name, value in model.named_parameters() if not value.any()]
    decays = [[id(p) for p in group["params"]] for group in build_groups(cfg, model)]
    # pytorchvideo's depth 18: one bottleneck in each of 4 stages of two pathways
    assert sum(bool((norm.weight == 0).all()) for norm in norms_of(model)) == 8
    assert {len(group) for group in decays} >= {2 * len(norms_of(model))}
    phases = build_row_schedule(cfg, 24).phases
    assert len({phase.num_bn_groups for phase in phases}) == 4
    for phase in phases:
        set_num_groups(model, phase.num_bn_groups)
        assert {norm.num_groups for norm in norms_of(model)} == {phase.num_bn_groups}
        assert [name for name, value in model.named_parameters() if not value.any()] == zeros
        found = [[id(p) for p in group["params"]] for group in build_groups(cfg, model)]
        assert found == decays


def test_convolutions_are_channels_last(tmp_path):
    model = build_model(tiny_config(tmp_path))
    convolutions = [m for m in model.modules() if isinstance(m, torch.nn.Conv3d)]
    layout = torch.channels_last_3d
    assert all(m.weight.is_contiguous(memory_format=layout) for m in convolutions)
