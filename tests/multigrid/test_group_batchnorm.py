"""group_batchnorm: plain layers of any model become grouped ones, with the same tensors."""

import pytest
import torch
from recipes import ROWS
from torch import nn

from mgexp import multigrid
from mgexp.multigrid import GroupedBatchNorm3d, group_batchnorm, set_num_groups


def network():
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Conv3d(3, 4, 1), nn.BatchNorm3d(4, eps=1e-3, momentum=0.2))
    return nn.ModuleDict({"body": inner, "norm": nn.BatchNorm3d(4), "flat": nn.BatchNorm1d(4)})


def test_every_layer_becomes_a_grouped_one_and_no_other_changes():
    model = group_batchnorm(network())
    kinds = [type(module).__name__ for module in model.modules()]
    assert kinds == [
        *("ModuleDict", "Sequential", "Conv3d", "GroupedBatchNorm3d"),
        *("GroupedBatchNorm3d", "BatchNorm1d"),
    ]


def test_tensors_and_settings_stay():
    model = network().eval()
    model["body"][1].momentum = None
    before = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    group_batchnorm(model)
    after = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    assert list(after) == list(before)
    assert all(after[name] is tensor for name, tensor in before.items())
    norm = model["body"][1]
    assert (norm.eps, norm.momentum, norm.training, norm.num_groups) == (1e-3, None, False, 1)


def test_one_group_computes_what_the_plain_layer_does():
    clips = torch.randn(4, 3, 2, 5, 5)
    plain, grouped = network()["body"], group_batchnorm(network())["body"]
    assert torch.equal(grouped(clips), plain(clips))
    assert torch.equal(grouped[1].running_var, plain[1].running_var)


def test_groups_are_normalised_apart():
    clips = torch.randn(4, 3, 2, 5, 5)
    model = group_batchnorm(network())
    set_num_groups(model, 2)
    alone = network()["body"]
    assert torch.equal(model["body"](clips)[:2], alone(clips[:2]))


def test_a_model_that_is_a_layer_is_replaced():
    norm = nn.BatchNorm3d(4)
    grouped = group_batchnorm(norm)
    assert isinstance(grouped, GroupedBatchNorm3d)
    assert grouped.weight is norm.weight
    assert group_batchnorm(grouped) is grouped


@pytest.mark.parametrize("setting", ["affine", "track_running_stats"])
def test_a_layer_without_its_tensors_is_an_error(setting):
    with pytest.raises(ValueError, match="need affine=True and track_running_stats=True"):
        group_batchnorm(nn.Sequential(nn.BatchNorm3d(4, **{setting: False})))


@pytest.mark.parametrize("row", ROWS)
def test_rows_by_name_are_the_papers(row):
    assert getattr(multigrid, row.upper()) == ROWS[row]
