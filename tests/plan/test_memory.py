"""The memory of a step, by hand: of a small network with one convolution, one BN and one classifier."""

import pytest
from tiny import VIT, tiny_config
from torch import nn

from mgexp.models.build import build_model
from mgexp.plan.memory import build_held_bytes, build_memory
from mgexp.registry import MODELS
from mgexp.train.setup import build_row_schedule

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


def kept_of_a_clip(frames, crop):
    """The clip for the kernel, the input of BN and the result of the ReLU for each pixel; few numbers besides."""
    return FLOAT * (3 + 8 + 8) * frames * crop**2


def memory_by_shape(cfg, num_processes=1):
    found = build_memory(cfg, build_row_schedule(cfg, 24, num_processes), num_processes)
    return found, {(one["frames"], one["crop"]): one for one in found["shapes"]}


def test_activations_are_those_of_all_clips_of_a_process(cfg_of):
    for num_processes in (1, 2):
        _, shapes = memory_by_shape(cfg_of(), num_processes)
        assert len(shapes) == 8
        for (frames, crop), clips in {(8, 32): 4, (4, 23): 16, (2, 16): 64}.items():
            one = shapes[frames, crop]
            assert one["clips"] == one["clips_at_once"] == clips // num_processes
            # The means of BN and the input of the classifier are a few numbers for each channel.
            few = FLOAT * 8 * 4 * one["clips"]
            kept = one["clips"] * kept_of_a_clip(frames, crop)
            assert kept <= one["activation_bytes"] <= kept + few


def test_parts_keep_less(cfg_of):
    """A part of 4 clips is one BN group of the long cycle. The short cycle has larger groups: 8 and 16 clips."""
    _, whole = memory_by_shape(cfg_of(TRAIN__MAX_CLIPS_PER_GPU=16))
    assert [one["clips_at_once"] for one in whole.values() if one["clips"] > 16] == [16] * 3
    one = whole[2, 16]
    assert one["activation_bytes"] == pytest.approx(16 * kept_of_a_clip(2, 16), rel=0.02)


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
    assert build_held_bytes(cfg, model, 2) == weights + 2 * gradients + states
    averaged = cfg_of(SOLVER__OPTIMIZING_METHOD=method, TRAIN__EMA_DECAY=0.9)
    assert build_held_bytes(averaged, model) == 2 * weights + gradients + states
    assert all(one.grad is None and not one.is_meta for one in model.parameters())


def test_blocks_that_are_computed_again_keep_what_lies_between_them(tmp_path):
    """3 blocks of 24 channels: without the inner tensors of two of them, less than half is kept."""
    kept = {}
    for is_on in (False, True):
        cfg = tiny_config(tmp_path, {**VIT, "TRAIN.ACTIVATION_CHECKPOINTING": is_on})
        _, shapes = memory_by_shape(cfg)
        kept[is_on] = shapes[8, 40]["activation_bytes"]
    tokens = 4 * 10 * 10
    assert 4 * FLOAT * 24 * tokens * 3 < kept[True] < kept[False] / 2
