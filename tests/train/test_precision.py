"""The four precisions: the types that each computes in, and the settings that it leaves unchanged."""

from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mgexp.errors import InputError
from mgexp.train.precision import Name, Precision, resolve_precision

CPU = torch.device("cpu")
MATMUL = torch.backends.cuda.matmul


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("fp32", torch.float32),
        ("tf32", torch.float32),
        ("bf16", torch.bfloat16),
        ("fp16", torch.float16),
    ],
)
def test_products_have_the_type_and_losses_are_fp32(name, dtype):
    layer = nn.Conv3d(3, 2, 1)
    with Precision(name).autocast(CPU):
        found = layer(torch.ones(1, 3, 2, 2, 2))
        one_label = F.cross_entropy(found.mean((2, 3, 4)), torch.tensor([0]))
        many_labels = F.binary_cross_entropy_with_logits(found.mean((2, 3, 4)), torch.zeros(1, 2))
    assert found.dtype == dtype
    assert one_label.dtype == many_labels.dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "wanted"), [("auto", "fp32"), *((name, name) for name in ("fp32", "bf16", "fp16"))]
)
def test_on_a_cpu_auto_is_fp32_and_others_are_there(name, wanted):
    assert resolve_precision(name, CPU) == Precision(wanted)


def test_tf32_on_a_cpu_is_refused():
    with pytest.raises(
        InputError, match=r"TRAIN.PRECISION = tf32, but .* set TRAIN.PRECISION auto"
    ):
        resolve_precision("tf32", CPU)


@pytest.mark.parametrize("name", get_args(Name))
def test_only_fp16_scales_its_loss(name):
    scaler = Precision(name).scaler(CPU)
    scaled = scaler.scale(torch.tensor(1.0)).item()
    assert scaled == (65536.0 if name == "fp16" else 1.0)
    assert bool(scaler.state_dict()) == (name == "fp16")


def test_backends_are_set_for_a_block_and_then_as_before():
    before = MATMUL.fp32_precision
    with Precision("tf32").backends():
        assert MATMUL.fp32_precision == "tf32"
        assert torch.backends.cudnn.conv.fp32_precision == "tf32"
        with Precision("bf16").backends():
            assert MATMUL.fp32_precision == "ieee"
            assert torch.backends.cudnn.conv.fp32_precision == "ieee"
        assert MATMUL.fp32_precision == "tf32"
    assert MATMUL.fp32_precision == before
