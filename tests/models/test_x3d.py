"""X3D: pytorchvideo's network at the full shape, and clips of every other shape."""

import torch
from pytorchvideo.models.x3d import create_x3d

from mgexp.config.load import config_of
from mgexp.models.build import build_model


def network(**changes):
    keys = {
        "MODEL.MODEL_NAME": "X3D", "DATA.NUM_FRAMES": 8, "DATA.TRAIN_CROP_SIZE": 64, "MODEL.NUM_CLASSES": 5,
        **changes,
    }  # fmt: skip
    return build_model(config_of(keys))


def test_at_the_full_shape_it_is_pytorchvideos_network_with_the_same_names():
    ours = network().eval()
    theirs = create_x3d(input_clip_length=8, input_crop_size=64, model_num_class=5).eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 8, 64, 64, generator=torch.Generator().manual_seed(0))
    # Theirs ends with a softmax.
    torch.testing.assert_close(ours(x).softmax(1), theirs(x))


def test_the_default_network_has_the_published_number_of_parameters():
    """3.79 million: pytorchvideo's model zoo, X3D XS, S and M."""
    assert sum(p.numel() for p in network(**{"MODEL.NUM_CLASSES": 400}).parameters()) == 3_794_274


def test_the_last_gamma_of_every_residual_block_is_zero():
    zeros = {
        name
        for name, x in network().named_parameters()
        if name.endswith("norm_c.weight") and not x.any()
    }
    assert len(zeros) == 3 + 5 + 11 + 7  # X3D-S (its paper, table 1)
