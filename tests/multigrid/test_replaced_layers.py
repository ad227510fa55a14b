"""A network's batch norm becomes grouped, with the same tensors, or the network is refused."""

import pytest
import torch
from recipes import ROWS
from torch import nn

from mgexp import multigrid
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d, group_batchnorm, set_num_groups


@pytest.mark.parametrize("layer", [nn.BatchNorm3d, nn.BatchNorm1d, nn.SyncBatchNorm])
def test_batch_norm_that_takes_no_groups_is_refused(layer):
    model = nn.Sequential(layer(2))
    set_num_groups(model, 1)
    with pytest.raises(ValueError, match=r"batch norm without groups: call group_batchnorm"):
        set_num_groups(model, 4)
    set_num_groups(nn.LayerNorm(2), 4)


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


def test_a_model_that_is_a_layer_becomes_grouped_and_keeps_its_hooks():
    norm, seen = nn.BatchNorm3d(4), []
    norm.register_forward_hook(lambda layer, inputs, out: seen.append(out))
    assert group_batchnorm(norm) is norm
    assert isinstance(norm, GroupedBatchNorm3d)
    assert group_batchnorm(norm) is norm
    out = norm(torch.zeros(2, 4, 1, 1, 1))
    assert seen[0] is out


@pytest.mark.parametrize("setting", ["affine", "track_running_stats"])
def test_a_layer_without_its_tensors_is_an_error(setting):
    with pytest.raises(ValueError, match="need affine=True and track_running_stats=True"):
        group_batchnorm(nn.Sequential(nn.BatchNorm3d(4, **{setting: False})))


@pytest.mark.parametrize("row", ROWS)
def test_rows_by_name_are_the_papers(row):
    assert getattr(multigrid, row.upper()) == ROWS[row]


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_frames_in_the_batch_are_normalised_over_groups_of_clips(groups):
    """The witness is nn.BatchNorm2d on the frames of each group of clips alone."""
    clips, frames = 6, 2
    x = torch.randn(clips, frames, 3, 4, 4, generator=torch.Generator().manual_seed(0)).double()
    model = group_batchnorm(nn.Sequential(nn.BatchNorm2d(3))).double().train()
    multigrid.set_num_groups(model, groups)
    wanted = [nn.BatchNorm2d(3).double().train()(part.flatten(0, 1)) for part in x.chunk(groups)]
    torch.testing.assert_close(model(x.flatten(0, 1)), torch.cat(wanted))
    assert model.state_dict().keys() == nn.Sequential(nn.BatchNorm2d(3)).state_dict().keys()
