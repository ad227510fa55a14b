"""How parameters are decayed, and how fast they learn: a network of four layers, by hand."""

from pathlib import Path

import pytest
import torch
from torch import nn

from mgexp.config.load import load_config
from mgexp.models.build import build_model
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d, set_num_groups
from mgexp.optim.build import GroupRules, build_optimizer, parameter_groups, set_lr

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

PLAIN = GroupRules(weight_decay=1e-4, bn_weight_decay=0.5, adaptive=True)
TSM = GroupRules(
    1e-4, 0.0, decay_biases=False, bias_lr_factor=2.0, head_lr_factor=5.0, adaptive=True
)
"""Of TSM's released code."""


def network(norm):
    """The classifier has the name that it has in our networks."""
    layers = {
        "conv": nn.Conv3d(3, 4, 1),
        "norm": norm(4),
        "5": nn.ModuleDict({"proj": nn.Linear(4, 2)}),
    }
    return nn.ModuleDict({"blocks": nn.ModuleDict(layers)})


def by_name(model, rules):
    """Of each parameter: weight decay, factor of the learning rate, and whether it takes a trust ratio."""
    names = {id(value): name.removeprefix("blocks.") for name, value in model.named_parameters()}
    return {
        names[id(value)]: (group["weight_decay"], group["lr_factor"], group["adapts"])
        for group in parameter_groups(model, rules)
        for value in group["params"]
    }


@pytest.mark.parametrize("norm", [nn.BatchNorm3d, GroupedBatchNorm3d])
def test_normalisation_has_its_own_decay_and_only_weights_take_steps_by_their_own_size(norm):
    assert by_name(network(norm), PLAIN) == {
        "conv.weight": (1e-4, 1.0, True),
        "conv.bias": (1e-4, 1.0, False),
        "norm.weight": (0.5, 1.0, False),
        "norm.bias": (0.5, 1.0, False),
        "5.proj.weight": (1e-4, 1.0, True),
        "5.proj.bias": (1e-4, 1.0, False),
    }


def test_biases_and_the_classifier_of_tsm():
    assert by_name(network(nn.BatchNorm3d), TSM) == {
        "conv.weight": (1e-4, 1.0, True),
        "conv.bias": (0.0, 2.0, False),
        "norm.weight": (0.0, 1.0, False),
        "norm.bias": (0.0, 1.0, False),
        "5.proj.weight": (1e-4, 5.0, True),
        "5.proj.bias": (0.0, 10.0, False),
    }


@pytest.mark.parametrize("num_groups", [1, 2, 16])
def test_the_number_of_groups_changes_no_decay(num_groups):
    model = network(GroupedBatchNorm3d)
    before = by_name(model, PLAIN)
    set_num_groups(model, num_groups)
    assert by_name(model, PLAIN) == before


def test_an_undecayed_weight_stays_where_its_gradient_is_zero():
    model = network(GroupedBatchNorm3d)
    groups = parameter_groups(model, GroupRules(weight_decay=0.5, bn_weight_decay=0.0))
    optimizer = torch.optim.SGD(groups, lr=1.0)
    before = {name: value.clone() for name, value in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    after = dict(model.named_parameters())
    torch.testing.assert_close(after["blocks.conv.weight"], 0.5 * before["blocks.conv.weight"])
    assert torch.equal(after["blocks.norm.weight"], before["blocks.norm.weight"])


def test_the_row_of_tsm_learns_as_its_released_code_does():
    """(decay, learning rate at a rate of 0.01): tensors of ResNet-50: 53 convolutions, 53 norms, 1 classifier."""
    pairs = ["RESNET.WIDTH_PER_GROUP", "8", "TRAIN.INIT_WEIGHTS", ""]
    cfg = load_config(EXPERIMENTS / "tsm/k400_tsm_8x8_r50/baseline.yaml", pairs)
    optimizer = build_optimizer(cfg, build_model(cfg))
    set_lr(optimizer, 0.01)
    found = {(g["weight_decay"], g["lr"]): len(g["params"]) for g in optimizer.param_groups}
    assert found == {(1e-4, 0.01): 53, (0.0, 0.01): 106, (1e-4, 0.05): 1, (0.0, 0.1): 1}
    assert cfg.SOLVER.CLIP_GRAD_L2NORM == 20.0
