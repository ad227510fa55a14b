"""Initial weights against pytorchvideo's own initialisation and PySlowFast's number of zeros."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from mgexp.models.build import init_weights
from mgexp.models.resnet import TEMPORAL, resnet
from mgexp.models.slowfast import slowfast
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "models.json").read_text())


class OtherBatchNorm3d(nn.BatchNorm3d):
    """A class that pytorchvideo has never heard of."""


NORMS = [nn.BatchNorm3d, GroupedBatchNorm3d, OtherBatchNorm3d]


def build(name: str, norm: type[nn.Module]) -> nn.Module:
    common = {"num_classes": 100, "depth": 50, "width": 16, "dropout": 0.5, "norm": norm}
    if name == "I3D_8x8_R50":
        return resnet(TEMPORAL["I3D"], **common)
    return slowfast(alpha=4, beta_inv=8, fusion_channel_ratio=2, fusion_kernel_frames=7, **common)


def num_zero_gammas(model: nn.Module) -> int:
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm3d)]
    return sum(bool((norm.weight == 0).all()) for norm in norms)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", GOLDEN["zero_gammas"])
def test_the_last_gamma_of_every_residual_block_is_zero(name, norm):
    model = build(name, norm)
    init_weights(model)
    assert num_zero_gammas(model) == GOLDEN["zero_gammas"][name]


@pytest.mark.parametrize("norm", NORMS)
def test_the_zeros_are_where_the_blocks_end(norm):
    from pytorchvideo.models.resnet import ResBlock

    model = build("SLOWFAST_8x8_R50", norm)
    init_weights(model)
    blocks = [module for module in model.modules() if isinstance(module, ResBlock)]
    assert len(blocks) == 32
    assert all((block.branch2.norm_c.weight == 0).all() for block in blocks)


def test_no_gamma_is_zero_on_request():
    model = build("I3D_8x8_R50", nn.BatchNorm3d)
    init_weights(model, zero_init_final_bn=False)
    assert num_zero_gammas(model) == 0


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", GOLDEN["zero_gammas"])
def test_weights_are_those_of_pytorchvideos_own_initialisation(name, norm):
    from pytorchvideo.models.weight_init import init_net_weights

    ours, theirs = build(name, norm), build(name, nn.BatchNorm3d)
    for parameter in ours.parameters():
        nn.init.constant_(parameter, 7.0)  # whatever was there is overwritten
    torch.manual_seed(3)
    init_net_weights(theirs, init_std=0.02)
    torch.manual_seed(3)
    init_weights(ours, fc_init_std=0.02)
    for (key, our), their in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.equal(our, their), key


def test_convolutions_have_variance_two_over_fan_out():
    conv = nn.Conv3d(50, 40, kernel_size=(5, 3, 3), bias=True)
    torch.manual_seed(0)
    init_weights(conv)
    assert conv.weight.var().item() == pytest.approx(2 / (40 * 5 * 3 * 3), rel=0.03)
    assert (conv.bias == 0).all()


def test_the_caller_seeds():
    first, second = nn.Linear(20, 10), nn.Linear(20, 10)
    torch.manual_seed(0)
    init_weights(first)
    init_weights(second)
    assert not torch.equal(first.weight, second.weight)


def test_a_layer_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="no initial weights for LayerNorm"):
        init_weights(nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)))
