"""MViTv2: torchvision's network at the full shape, right positions at every other, and blocks dropped by clip."""

import re

import pytest
import torch
from fill import TRANSFORMERS, filled, sine_clip
from networks import clips
from torchvision.models import video

from mgexp.config.keys import MvitKeys
from mgexp.config.load import config_of
from mgexp.errors import InputError
from mgexp.models.build import build_model, build_problems
from mgexp.models.layers import Draws, set_draws
from mgexp.models.mvit import mvit
from mgexp.models.weights import fit_weights, named_weights
from mgexp.multigrid import check_shapes

FULL = (8, 64)
KEYS = {"MODEL.MODEL_NAME": "MViT", "DATA.NUM_FRAMES": 8, "DATA.TRAIN_CROP_SIZE": 64}


def small(full=FULL, **changes):
    torch.manual_seed(0)
    keys = MvitKeys(**{"EMBED_DIM": 16, "DEPTH": 4, "NUM_HEADS": 2, "STAGES": (1, 2), **changes})
    return mvit(keys, num_classes=5, full=full, dropout=0.0).eval()


def small_with_positions():
    """As they are made, the tables are so small that the check of shapes would see no positions in them."""
    model = small()
    for name, parameter in model.named_parameters():
        if "rel_pos" in name:
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(0))
    return model


def test_at_the_full_shape_it_is_torchvisions_mvit_v2_s_bit_for_bit(monkeypatch):
    ours = build_model(config_of({**KEYS, "MODEL.NUM_CLASSES": 7})).eval()
    # mvit_v2_s takes no other size. Its settings go to the class that it makes.
    made, size = video.mvit.MViT, {"spatial_size": (64, 64), "temporal_size": 8}
    monkeypatch.setattr(video.mvit, "MViT", lambda **settings: made(**{**settings, **size}))
    # A CPU may compute another memory format with another kernel, which rounds differently.
    theirs = video.mvit_v2_s(num_classes=7).eval().to(memory_format=torch.channels_last_3d)
    state = theirs.state_dict()
    assert [(name, x.shape) for name, x in ours.state_dict().items()] == [
        (name, x.shape) for name, x in state.items()
    ]
    ours.load_state_dict(state)
    torch.testing.assert_close(ours(clips(FULL)), theirs(clips(FULL)), rtol=0, atol=0)


def test_positions_are_right_at_every_shape():
    model = small_with_positions()
    found = check_shapes(model, [(4, 32), (4, 48), (8, 48), FULL])
    assert [one.problem for one in found] == [""] * 4


def test_weights_of_another_full_clip_have_their_tables_stretched():
    """A network of smaller clips then is the one of larger clips at that shape, bit for bit."""
    large = small_with_positions()
    ours = small(full=(4, 32))
    fit_weights(named_weights("w.pt", large.state_dict()), ours).load_into(ours)
    assert ours.blocks[0].attn.rel_pos_t.shape == (3, 8)
    torch.testing.assert_close(ours(clips((4, 32))), large(clips((4, 32))), rtol=0, atol=0)


@torch.no_grad()
def test_logits_from_pyslowfasts_file_are_those_of_pyslowfast():
    model = small()
    fit = fit_weights(named_weights("MVITv2.pyth", filled("mvit")), model)
    assert (fit.file.naming, fit.left, fit.missing, fit.unused) == (
        "PySlowFast's MViTv2", (), (), ()
    )  # fmt: skip
    fit.load_into(model)
    wanted = torch.tensor(TRANSFORMERS["mvit"]["logits"])
    torch.testing.assert_close(model(sine_clip(*FULL))[0], wanted, rtol=1e-5, atol=1e-5)


def test_a_file_of_mvit_v1_is_refused():
    tensors = {**filled("mvit"), "pos_embed_spatial": torch.ones(1, 256, 16)}
    with pytest.raises(InputError, match="not in the model: pos_embed_spatial"):
        fit_weights(named_weights("MVIT_B.pyth", tensors), small())


def test_a_clip_skips_the_same_branches_in_every_process():
    keys = {"MVIT.EMBED_DIM": 16, "MVIT.DEPTH": 4, "MVIT.STAGES": [1, 2], "MVIT.DROPPATH_RATE": 0.5}
    model = build_model(config_of({**KEYS, **keys})).train()
    x = clips(FULL, num=6)
    set_draws(model, Draws(seed=0, step=3), 6)
    together = model(x)
    set_draws(model, Draws(seed=0, step=3, first_clip=4), 2)
    torch.testing.assert_close(model(x[4:]), together[4:])
    set_draws(model, Draws(seed=0, step=4), 6)
    assert not torch.allclose(model(x), together)


def test_the_share_grows_from_block_to_block_and_each_branch_draws_for_itself():
    blocks = small(DEPTH=5, DROPPATH_RATE=0.2).blocks
    assert [block.drop1.p for block in blocks] == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])
    assert [block.drop2.p for block in blocks] == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])
    assert not {id(block.drop1) for block in blocks} & {id(block.drop2) for block in blocks}


def test_shapes_that_do_not_fit_are_told_before_a_run():
    (problem,) = build_problems(config_of({**KEYS, "DATA.TRAIN_CROP_SIZE": 80}), [(8, 80)])
    assert "a clip of 8 x 80 x 80 does not divide into 2 x 32 x 32" in problem
    for stages in ((1, 4), (1, 1)):
        said = re.escape(f"the stages {stages} are not different blocks from 1 to 3")
        with pytest.raises(ValueError, match=said):
            small(STAGES=stages)
    with pytest.raises(ValueError, match="15 channels do not divide by 2 heads"):
        small(EMBED_DIM=15)
    assert build_problems(config_of(KEYS), [(2, 32), (8, 64)]) == []
    (problem,) = build_problems(config_of(KEYS), [(2, 32), (4, 45), (8, 64)])
    assert problem.startswith("MViT cannot take clips of 4 frames of 45 x 45 pixels: ")


def test_gradients_reach_every_parameter_at_a_coarse_shape():
    model = small().train()
    model(clips((4, 32))).square().sum().backward()
    names = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # The classifier sees the class token, whose query is not pooled and has no position.
    of_queries = ("rel_pos_h", "rel_pos_w", "rel_pos_t", "pool_q.pool.weight")
    assert names == [f"blocks.3.attn.{name}" for name in of_queries]
