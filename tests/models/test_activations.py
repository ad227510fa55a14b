"""Memory of activations against sums by hand."""

import torch
from torch import nn

from mgexp.models.cost import activation_bytes
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d

FLOAT = 4


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(3, 8, 1, bias=False)
        self.norm = GroupedBatchNorm3d(8)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.norm(self.conv(x)))


def test_what_a_convolution_a_norm_and_a_relu_keep():
    pixels = 4 * 16 * 16
    clip = 3 * pixels  # for the gradient of the kernel
    into_norm, out_of_relu = 8 * pixels, 8 * pixels
    mean_and_deviation = 2 * 8 // 2  # of two clips, halved
    expected = FLOAT * (clip + into_norm + out_of_relu + mean_and_deviation)
    assert activation_bytes(Small(), 4, 16) == expected


def test_a_tensor_that_two_layers_keep_counts_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = (nn.Conv3d(3, 8, 1, bias=False) for _ in range(2))

        def forward(self, x):
            return self.one(x) + self.two(x)

    assert activation_bytes(Twice(), 2, 8) == FLOAT * 3 * 2 * 8 * 8


def test_the_model_is_as_it_was():
    model = Small().eval()
    activation_bytes(model, 2, 8)
    assert not model.training
    assert next(model.parameters()).device == torch.device("cpu")
    assert model.norm.num_batches_tracked == 0
