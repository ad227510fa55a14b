"""The least time of a step: a convolution by hand, and SlowFast R50 as another program counted it."""

import pytest
import torch
from peak import Peak
from roofline import roofline_of
from tiny import ROWS
from torch import nn

from mgexp.config.load import load_config
from mgexp.models.build import build_on_meta


def test_a_convolution_and_its_gradients_by_hand():
    """2 clips of 3 channels and 5 x 4 x 4 pixels, 8 kernels of one pixel: 1,920 bytes become 5,120."""
    layer = nn.Conv3d(3, 8, 1, bias=False, device="meta")
    clips = torch.empty(2, 3, 5, 4, 4, device="meta", requires_grad=True)
    found = roofline_of(lambda: layer(clips).backward(torch.empty(2, 8, 5, 4, 4, device="meta")))
    # The kernels of both gradients read that of the result. Each reads what the other one makes.
    flops, moved = 2 * 160 * 3 * 8, 1920 + 96 + 5120
    assert found.operators[:2] == ((flops, moved), (2 * flops, 2 * moved))
    # At as many FLOPs as bytes a second, FLOPs take longer in both.
    assert found.seconds(Peak(1, 1, 1)) == 3 * flops + found.num_bytes - 3 * moved


def test_a_layer_with_a_group_for_each_channel_and_an_update_by_hand():
    """8 kernels of one channel each. SGD reads weights and gradients of 32 bytes, and writes the weights."""
    layer = nn.Conv3d(8, 8, 1, bias=False, groups=8, device="meta")
    clips = torch.empty(2, 8, 5, 4, 4, device="meta", requires_grad=True)
    found = roofline_of(lambda: layer(clips).backward(torch.empty(2, 8, 5, 4, 4, device="meta")))
    assert found.flops == 3 * 2 * 160 * 8
    update = torch.optim.SGD(layer.parameters(), 0.1, foreach=True)
    assert roofline_of(update.step).num_bytes == 3 * 32


def test_slowfast_moves_as_many_bytes_as_another_program_counted():
    """8 x 32 x 224²: 2,362 GFLOP, and 49.8 GB in bf16 without casts and the update, by a count of each kernel."""
    model = build_on_meta(load_config(ROWS["main/k400_slowfast_8x8_r50/baseline"])).train()
    clips = torch.empty(8, 3, 32, 224, 224, device="meta")
    found = roofline_of(lambda: model(clips).sum().backward())
    assert found.flops == pytest.approx(2362e9, rel=1e-3)
    assert found.num_bytes == pytest.approx(2 * 49.8e9, rel=0.03)  # here in fp32
