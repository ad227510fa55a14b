"""SlowFast against pytorchvideo's own network."""

import pytest
import torch
from networks import slowfast
from torch import nn

from mgexp.models.build import init_weights
from mgexp.models.resnet import slow_frames
from mgexp.multigrid.batchnorm import group_batchnorm, set_num_groups


@pytest.mark.parametrize("depth", [50, 101])
def test_logits_are_those_of_pytorchvideos_network_with_its_fixed_head(depth):
    from pytorchvideo.models.slowfast import create_slowfast

    torch.manual_seed(0)
    ours = slowfast(8, 5, **{"RESNET.DEPTH": depth}).eval()
    for parameter in ours.parameters():  # no gamma is 0, so that every block counts
        nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    sizes = {"stem_dim_outs": (8, 1), "model_num_class": 5, "model_depth": depth}
    theirs = create_slowfast(**sizes).eval()
    assert list(theirs.state_dict()) == list(ours.state_dict())
    theirs.load_state_dict(ours.state_dict())
    clips = torch.randn(1, 3, 32, 224, 224)  # the shape that the fixed head takes
    slow = clips[:, :, torch.linspace(0, 31, 8).long()]
    with torch.no_grad():
        torch.testing.assert_close(ours(clips), theirs([slow, clips]))


@pytest.mark.parametrize("alpha", [2, 4, 8, 16])
def test_slow_frames_are_the_truncated_linspace(alpha):
    for frames in range(alpha, 129, alpha):
        expected = torch.linspace(0, frames - 1, frames // alpha).long().tolist()
        assert list(slow_frames(frames, alpha)) == expected


def test_frames_that_alpha_does_not_divide_are_refused():
    with pytest.raises(ValueError, match="T = 6 frames with alpha = 4"):
        slowfast()(torch.zeros(1, 3, 6, 32, 32, device="meta"))


def test_two_bn_groups_give_the_training_logits_of_two_plain_batches():
    torch.manual_seed(0)
    grouped = slowfast(8, 5, **{"MODEL.DROPOUT_RATE": 0.0}).double()
    init_weights(grouped, zero_init_final_bn=False)
    plain = slowfast(8, 5, **{"MODEL.DROPOUT_RATE": 0.0}).double()
    plain.load_state_dict(grouped.state_dict())
    set_num_groups(group_batchnorm(grouped), 2)
    clips = torch.randn(4, 3, 8, 32, 32, dtype=torch.float64)
    expected = torch.cat([plain(clips[:2]), plain(clips[2:])])
    torch.testing.assert_close(grouped(clips), expected)
