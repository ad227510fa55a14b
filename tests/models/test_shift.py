"""The temporal shift against tables written by hand."""

import pytest
import torch
from torch import nn

from mgexp.models.resnet import ShiftConv3d, temporal_shift

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


def test_the_input_stays_as_it_was():
    x = numbered(4).clone()
    temporal_shift(x)
    assert torch.equal(x, numbered(4))


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
