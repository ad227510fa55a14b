"""ResNets and the temporal shift against pytorchvideo's networks, and shifts by hand."""

import pytest
import torch
from torch import nn

from mgexp.models.resnet import TEMPORAL, ShiftConv3d, resnet, temporal_shift


def build(name: str, **changes) -> nn.Module:
    """The R50 network on Kinetics-400, but for ``changes``."""
    arguments = {"num_classes": 400, "depth": 50, "dropout": 0.5}
    return resnet(TEMPORAL[name], **{**arguments, **changes})


def build_on_meta(name: str, **changes) -> nn.Module:
    """The same without weights: at once, however large."""
    with torch.device("meta"):
        return build(name, **changes)


@pytest.mark.parametrize("name", ["Slow", "TSM"])
def test_networks_without_a_pool_take_a_single_frame(name):
    model = build_on_meta(name, num_classes=5).eval()
    assert model(torch.zeros(1, 3, 1, 32, 32, device="meta")).shape == (1, 5)


def pytorchvideos(name: str, **arguments) -> nn.Module:
    from pytorchvideo.models.hub import resnet as hub

    builders = {"I3D": hub.i3d_r50, "C2D": hub.c2d_r50, "Slow": hub.slow_r50}
    return builders[name](**arguments)


def of_width_8(name: str, depth: int = 50) -> nn.Module:
    """A network in which every block counts: no gamma is 0."""
    torch.manual_seed(0)
    model = build(name, width=8, num_classes=5, depth=depth).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    return model


@pytest.mark.parametrize(
    ("name", "depth", "crop"),
    [
        ("I3D", 50, 224),
        ("C2D", 50, 224),
        ("Slow", 50, 224),
        ("I3D", 101, 224),
        ("Slow", 50, 45),
        ("I3D", 101, 45),
    ],
)
def test_logits_are_those_of_pytorchvideos_network(name, depth, crop):
    """Its default head pools a window of fixed size, which takes a crop of 224 alone."""
    ours = of_width_8(name, depth)
    changes = {} if depth == 50 else {"model_depth": depth}
    if crop != 224:
        changes["head_pool"] = nn.AdaptiveAvgPool3d
    theirs = pytorchvideos(name, stem_dim_out=8, model_num_class=5, **changes).eval()
    assert list(theirs.state_dict()) == list(ours.state_dict())
    theirs.load_state_dict(ours.state_dict())
    clips = torch.randn(1, 3, 8, crop, crop)
    with torch.no_grad():
        torch.testing.assert_close(ours(clips), theirs(clips))


def test_a_larger_crop_is_tested_fully_convolutionally():
    """The witness: pytorchvideo's network with a fixed head of the larger size."""
    from pytorchvideo.models.resnet import create_resnet

    ours = of_width_8("Slow")
    theirs = create_resnet(
        stem_dim_out=8,
        model_num_class=5,
        stem_conv_kernel_size=(1, 7, 7),
        head_pool_kernel_size=(8, 8, 8),  # 8 frames, 256 / 32 pixels
    ).eval()
    theirs.load_state_dict(ours.state_dict())
    clips = torch.randn(1, 3, 8, 256, 256)
    with torch.no_grad():
        torch.testing.assert_close(ours(clips), theirs(clips))


def test_tsm_shifts_in_every_residual_branch_before_its_first_convolution():
    model = build_on_meta("TSM")
    shifting = [
        name for name, m in model.named_modules() if isinstance(m, ShiftConv3d) and m.shifts
    ]
    branches = [name for name, _ in model.named_modules() if name.endswith("branch2")]
    assert len(branches) == 16
    assert shifting == [f"{branch}.conv_a" for branch in branches]


def test_tsm_of_depth_101_shifts_in_every_second_block():
    """Stages of 3, 4, 23 and 3 blocks: 2 + 2 + 12 + 2 shifts, as the released code has."""
    with torch.device("meta"):
        model = resnet(TEMPORAL["TSM"], num_classes=2, depth=101, dropout=0.0)
    shifting = [
        name for name, m in model.named_modules() if isinstance(m, ShiftConv3d) and m.shifts
    ]
    assert len(shifting) == 18
    assert shifting[:2] == [f"blocks.1.res_blocks.{number}.branch2.conv_a" for number in (0, 2)]


# Channels 0 | 1 | 2 … 7 of 8: from the next frame, from the one before, the same. Frames are 1 … T, 0 is none.
TABLES = {
    1: [[0], [0], [1]],
    2: [[2, 0], [0, 1], [1, 2]],
    4: [[2, 3, 4, 0], [0, 1, 2, 3], [1, 2, 3, 4]],
}


def numbered(frames: int, channels: int = 8) -> torch.Tensor:
    """Clips (2, channels, frames, 3, 3) whose values are 100 × clip + the number of the frame."""
    frame = torch.arange(1.0, frames + 1).view(1, 1, -1, 1, 1)
    return (frame + 100 * torch.arange(2.0).view(2, 1, 1, 1, 1)).expand(2, channels, frames, 3, 3)


@pytest.mark.parametrize("frames", TABLES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d])
def test_channels_move_as_in_the_table(frames, layout):
    x = numbered(frames).contiguous(memory_format=layout)
    shifted = temporal_shift(x)
    for channel in range(8):
        row = TABLES[frames][min(channel, 2)]
        assert shifted[0, channel, :, 0, 0].tolist() == row
        # a frame of the other clip never comes in, and what is missing is 0 in both
        assert shifted[1, channel, :, 2, 2].tolist() == [100 + t if t else 0 for t in row]
    assert shifted.is_contiguous(memory_format=layout)


def test_an_eighth_of_many_channels_goes_each_way():
    shifted = temporal_shift(numbered(2, channels=64))
    assert shifted[0, :, 0, 0, 0].tolist() == [2] * 8 + [0] * 8 + [1] * 48


def test_gradients_go_back_the_way_that_the_values_came():
    x = torch.randn(1, 8, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(temporal_shift, x)


def test_the_convolution_sees_shifted_frames_and_has_the_keys_of_any_other():
    torch.manual_seed(0)
    conv = ShiftConv3d(8, 4, kernel_size=1)
    plain = nn.Conv3d(8, 4, kernel_size=1)
    plain.load_state_dict(conv.state_dict())
    x = torch.randn(2, 8, 4, 5, 5)
    torch.testing.assert_close(conv(x), plain(temporal_shift(x)))
    assert not torch.allclose(conv(x), plain(x))


def test_frames_of_tsm_meet_only_by_shifts():
    model = of_width_8("TSM")
    clips = torch.randn(1, 3, 4, 32, 32)
    with torch.no_grad():
        together = model(clips)
        for module in model.modules():
            if isinstance(module, ShiftConv3d):
                module.forward = nn.Conv3d.forward.__get__(module)
        alone = torch.stack([model(clips[:, :, t : t + 1]) for t in range(4)]).mean(0)
        torch.testing.assert_close(model(clips), alone)
    assert not torch.allclose(together, alone, rtol=0.01)
