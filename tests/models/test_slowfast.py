"""SlowFast against pytorchvideo's own network."""

import pytest
import torch
from networks import slowfast
from torch import nn

from mgexp.models.build import init_weights
from mgexp.models.resnet import slow_frames
from mgexp.multigrid.batchnorm import group_batchnorm, set_num_groups


@pytest.mark.parametrize("depth", [50, 101])
@pytest.mark.parametrize(
    ("frames", "crop", "kernel_size", "head"),
    # pytorchvideo's default head pools windows of fixed sizes, which take clips of 32 x 224² alone.
    [(32, 224, 7, {}), (8, 45, 5, {"head_pool": nn.AdaptiveAvgPool3d})],
)
def test_logits_are_those_of_pytorchvideos_network(depth, frames, crop, kernel_size, head):
    from pytorchvideo.models.slowfast import create_slowfast

    torch.manual_seed(0)
    keys = {"RESNET.DEPTH": depth, "SLOWFAST.FUSION_KERNEL_SZ": kernel_size}
    ours = slowfast(8, 5, **keys).eval()
    for parameter in ours.parameters():  # no gamma is 0, so that every block counts
        nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    sizes = {"stem_dim_outs": (8, 1), "model_num_class": 5, "model_depth": depth}
    sizes["slowfast_fusion_conv_kernel_size"] = (kernel_size, 1, 1)
    theirs = create_slowfast(**sizes, **head).eval()
    assert list(theirs.state_dict()) == list(ours.state_dict())
    theirs.load_state_dict(ours.state_dict())
    clips = torch.randn(1, 3, frames, crop, crop)
    slow = clips[:, :, torch.linspace(0, frames - 1, frames // 4).long()]
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
