"""Which parameters are decayed: a network of four layers, by hand."""

import pytest
import torch
from torch import nn

from mgexp.multigrid.batchnorm import GroupedBatchNorm3d, set_num_groups
from mgexp.optim.groups import adaptive_groups, parameter_groups


def network(norm):
    layers = {"conv": nn.Conv3d(3, 4, 1), "norm": norm(4), "head": nn.Linear(4, 2)}
    return nn.Sequential(nn.ModuleDict(layers))


def names(model, group):
    known = {id(parameter): name for name, parameter in model.named_parameters()}
    return [known[id(parameter)].removeprefix("0.") for parameter in group["params"]]


@pytest.mark.parametrize("norm", [nn.BatchNorm3d, GroupedBatchNorm3d])
def test_normalisation_has_its_own_decay(norm):
    model = network(norm)
    others, norms = parameter_groups(model, 1e-4, 0.0)
    assert names(model, others) == ["conv.weight", "conv.bias", "head.weight", "head.bias"]
    assert names(model, norms) == ["norm.weight", "norm.bias"]
    assert (others["weight_decay"], norms["weight_decay"]) == (1e-4, 0.0)


@pytest.mark.parametrize("num_groups", [1, 2, 16])
def test_the_number_of_groups_changes_no_decay(num_groups):
    model = network(GroupedBatchNorm3d)
    set_num_groups(model, num_groups)
    _, norms = parameter_groups(model, 1e-4, 0.0)
    assert names(model, norms) == ["norm.weight", "norm.bias"]


def test_only_weights_take_steps_by_their_own_size():
    model = network(GroupedBatchNorm3d)
    weights, biases, norms = adaptive_groups(model, 1e-4, 0.5)
    assert names(model, weights) == ["conv.weight", "head.weight"]
    assert names(model, biases) == ["conv.bias", "head.bias"]
    assert names(model, norms) == ["norm.weight", "norm.bias"]
    assert [group["adapts"] for group in (weights, biases, norms)] == [True, False, False]
    assert [group["weight_decay"] for group in (weights, biases, norms)] == [1e-4, 1e-4, 0.5]


def test_an_undecayed_weight_stays_where_its_gradient_is_zero():
    model = network(GroupedBatchNorm3d)
    optimizer = torch.optim.SGD(parameter_groups(model, 0.5, 0.0), lr=1.0)
    before = {name: value.clone() for name, value in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    after = dict(model.named_parameters())
    torch.testing.assert_close(after["0.conv.weight"], 0.5 * before["0.conv.weight"])
    assert torch.equal(after["0.norm.weight"], before["0.norm.weight"])
