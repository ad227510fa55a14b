"""SlowFast against pytorchvideo's own network."""

import pytest
import torch
from torch import nn

from mgexp.models.build import init_weights
from mgexp.models.resnet import SlowFast, slow_frames, slowfast
from mgexp.multigrid.batchnorm import group_batchnorm, set_num_groups


def build(**changes) -> SlowFast:
    """The 8x8 R50 network on Kinetics-400, but for ``changes``."""
    arguments = {
        "num_classes": 400,
        "depth": 50,
        "alpha": 4,
        "beta_inv": 8,
        "fusion_channel_ratio": 2,
        "fusion_kernel_frames": 7,
        "dropout": 0.5,
    }
    return slowfast(**{**arguments, **changes})


def build_on_meta(**changes) -> SlowFast:
    """The same without weights: at once, however large."""
    with torch.device("meta"):
        return build(**changes)


def test_state_dict_is_pytorchvideos_own():
    from pytorchvideo.models.hub.slowfast import slowfast_r50

    with torch.device("meta"):
        theirs = slowfast_r50().state_dict()
    ours = build_on_meta().state_dict()
    assert [(key, value.shape) for key, value in ours.items()] == [
        (key, value.shape) for key, value in theirs.items()
    ]


def test_logits_are_those_of_pytorchvideos_network_with_its_fixed_head():
    from pytorchvideo.models.slowfast import create_slowfast

    torch.manual_seed(0)
    ours = build(width=8, num_classes=5).eval()
    for parameter in ours.parameters():  # no gamma is 0, so that every block counts
        nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    theirs = create_slowfast(stem_dim_outs=(8, 1), model_num_class=5).eval()
    theirs.load_state_dict(ours.state_dict())
    clips = torch.randn(1, 3, 32, 224, 224)  # the shape that the fixed head takes
    slow = clips[:, :, torch.linspace(0, 31, 8).long()]
    with torch.no_grad():
        torch.testing.assert_close(ours(clips), theirs([slow, clips]))


def test_two_bn_groups_give_the_training_logits_of_two_plain_batches():
    torch.manual_seed(0)
    grouped = build(width=8, num_classes=5, dropout=0.0).double()
    init_weights(grouped, zero_init_final_bn=False)
    plain = build(width=8, num_classes=5, dropout=0.0).double()
    plain.load_state_dict(grouped.state_dict())
    set_num_groups(group_batchnorm(grouped), 2)
    clips = torch.randn(4, 3, 8, 32, 32, dtype=torch.float64)
    expected = torch.cat([plain(clips[:2]), plain(clips[2:])])
    torch.testing.assert_close(grouped(clips), expected)


@pytest.mark.parametrize("alpha", [2, 4, 8, 16])
def test_slow_frames_are_the_truncated_linspace(alpha):
    for frames in range(alpha, 129, alpha):
        expected = torch.linspace(0, frames - 1, frames // alpha).long().tolist()
        assert list(slow_frames(frames, alpha)) == expected


@pytest.mark.parametrize("frames", [4, 8, 32])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last_3d])
def test_slow_clips_keep_the_memory_format(frames, memory_format):
    clips = torch.randn(1, 3, frames, 6, 6).contiguous(memory_format=memory_format)
    assert (
        SlowFast(nn.ModuleList(), alpha=4)
        .slow_clips(clips)
        .is_contiguous(memory_format=memory_format)
    )


def test_frames_that_alpha_does_not_divide_are_refused():
    with pytest.raises(ValueError, match="T = 6 frames with alpha = 4"):
        build_on_meta()(torch.zeros(1, 3, 6, 32, 32, device="meta"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 12}, "width = 12 .* beta_inv = 8"),
        ({"fusion_kernel_frames": 6}, "fusion_kernel_frames = 6 must be odd"),
    ],
)
def test_arguments_that_make_no_network_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        build(**changes)
