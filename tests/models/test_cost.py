"""FLOPs and memory of activations by hand: of single layers, and of the steps of a schedule."""

import pytest
import torch
import torch.nn.functional as F
from networks import video_transformer
from tiny import VIT, tiny_config
from torch import nn

from mgexp.config.load import config_of
from mgexp.models.build import build_model, build_on_meta
from mgexp.models.cost import activation_bytes, macs_by_shape, products_by_shape, train_flops
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d
from mgexp.train.setup import build_row_schedule


def test_macs_of_a_convolution_by_hand():
    model = nn.Conv3d(3, 5, (1, 3, 3), padding=(0, 1, 1), bias=False).train()
    found = macs_by_shape(model, [(4, 8), (2, 8), (4, 8)])
    assert found == {(4, 8): 3 * 5 * 9 * 4 * 64, (2, 8): 3 * 5 * 9 * 2 * 64}
    assert model.training


def test_products_of_a_transformer_by_hand():
    """N tokens of C channels: 12 N C² for linear layers and 2 N² C for attention in each block."""
    keys = {"MODEL.MODEL_NAME": "ViT", "DATA.NUM_FRAMES": 16}
    keys |= {"VIT.EMBED_DIM": 768, "VIT.NUM_HEADS": 12}
    tokens = {(4, 160): 200, (16, 224): 1568}
    found = products_by_shape(build_on_meta(config_of(keys)), tokens)
    wanted = {
        size: n * 1536 * 768 + 12 * (12 * n * 768**2 + 2 * n * n * 768) + 768 * 400
        for size, n in tokens.items()
    }
    assert found == wanted


def test_products_of_a_convolution_are_its_macs_and_nothing_else_counts():
    model = nn.Sequential(nn.Conv3d(3, 5, (1, 3, 3), padding=(0, 1, 1)), nn.BatchNorm3d(5)).eval()
    assert products_by_shape(model, [(4, 8)]) == {(4, 8): 3 * 5 * 9 * 4 * 64}


class Attention(nn.Module):
    """Queries of 6 and keys of 4 places, with 2 heads."""

    def forward(self, x):
        places = x.flatten()[:36].view(1, 2, 6, 3)
        return F.scaled_dot_product_attention(places, places[:, :, :4], places[:, :, :4])


def test_macs_of_attention_by_hand():
    assert macs_by_shape(Attention(), [(4, 8)]) == {(4, 8): 2 * (6 * 4 * 3 + 6 * 4 * 3)}


def test_training_is_six_macs_for_every_clip_of_every_step(tmp_path):
    schedule = build_row_schedule(tiny_config(tmp_path), 24)
    macs = {shape: 1000 * shape[0] + shape[1] for shape in schedule.sizes}
    plans = map(schedule.plan_at, range(schedule.total_steps))
    each = [6 * plan.clips * macs[plan.frames, plan.crop] for plan in plans]
    for end in (0, 1, 2, 5, None):
        assert train_flops(schedule, macs, end) == sum(each[:end])


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


def test_attention_keeps_no_products_of_pairs_of_tokens():
    """A ViT with 512 tokens keeps on a CPU what the estimate says. All products alone would be more than that."""
    sizes = {
        "EMBED_DIM": 32,
        "NUM_HEADS": 4,
        "MLP_RATIO": 4.0,
        "TUBELET": (1, 4, 4),
        "full": (8, 32),
    }
    model = video_transformer(**sizes).train()
    weights = {one.untyped_storage().data_ptr() for one in model.parameters()}
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _output = model(torch.randn(2, 3, 8, 32, 32))
    measured = sum(one.nbytes() for at, one in kept.items() if at not in weights) / 2
    assert activation_bytes(model, 8, 32) == pytest.approx(measured, rel=0.02)


def test_blocks_that_are_computed_again_keep_what_lies_between_them(tmp_path):
    """3 blocks of 24 channels: without the inner tensors of two of them, less than half is kept."""
    kept = {}
    for is_on in (False, True):
        cfg = tiny_config(tmp_path, {**VIT, "TRAIN.ACTIVATION_CHECKPOINTING": is_on})
        kept[is_on] = activation_bytes(build_model(cfg), 8, 40)
    tokens = 4 * 10 * 10
    assert FLOAT * 24 * tokens * 3 < kept[True] < kept[False] / 2


def test_the_model_is_as_it_was():
    model = Small().eval()
    activation_bytes(model, 2, 8)
    assert not model.training
    assert next(model.parameters()).device == torch.device("cpu")
    assert model.norm.num_batches_tracked == 0
