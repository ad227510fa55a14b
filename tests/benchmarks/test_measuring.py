"""The memory that a process holds, by hand: of a network with one convolution, one BN and one classifier."""

import pytest
from measuring import build_held_bytes
from tiny import tiny_config
from torch import nn

from mgexp.models.build import build_model
from mgexp.registry import MODELS

FLOAT, INT64 = 4, 8
PARAMS = 8 * 3 + 2 * 8 + (2 * 8 + 2)  # a kernel of 1 x 1 x 1 without bias, BN, the classifier
NUM_TENSORS = 5
BUFFERS = 2 * 8 * FLOAT + INT64  # running mean and variance, and the number of batches


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv3d(3, 8, 1, bias=False), nn.BatchNorm3d(8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3, 4)))


@pytest.fixture
def cfg_of(tmp_path, own_code):
    MODELS.add("Small", lambda cfg: Small())

    def make(**changes):
        own = {key.replace("__", "."): value for key, value in changes.items()}
        return tiny_config(tmp_path, {"MODEL.MODEL_NAME": "Small", **own})

    return make


@pytest.mark.parametrize(
    ("method", "per_parameter", "per_tensor"),
    [
        ("sgd", 1, 0),  # momentum
        ("lars", 1, 0),
        ("adamw", 2, FLOAT),  # two moments, and a step of each tensor
        ("lamb", 2, 0),
        ("pmd_lamb", 2, 0),
    ],
)
def test_weights_gradients_and_states_by_hand(cfg_of, method, per_parameter, per_tensor):
    cfg = cfg_of(SOLVER__OPTIMIZING_METHOD=method)
    model = build_model(cfg)
    states = PARAMS * FLOAT * per_parameter + NUM_TENSORS * per_tensor
    weights, gradients = PARAMS * FLOAT + BUFFERS, PARAMS * FLOAT
    assert build_held_bytes(cfg, model) == weights + gradients + states
    averaged = cfg_of(SOLVER__OPTIMIZING_METHOD=method, TRAIN__EMA_DECAY=0.9)
    assert build_held_bytes(averaged, model) == 2 * weights + gradients + states
    assert all(one.grad is None and not one.is_meta for one in model.parameters())
