"""The plain video transformer: against an outside one at the full shape, and its positions at all shapes."""

import pytest
import torch
from networks import clips, video_transformer
from torch import nn

from mgexp.models.layers import Draws, set_draws
from mgexp.models.vit import DropPath, init_transformer
from mgexp.multigrid import check_shapes

FULL = (8, 64)
SHAPES = [(4, 32), (4, 48), (8, 48), FULL]


def network(**changes):
    torch.manual_seed(0)
    model = video_transformer(**{"EMBED_DIM": 48, "NUM_HEADS": 4, "full": FULL, **changes})
    init_transformer(model, 0.1)
    return model.eval()


def test_at_the_full_shape_it_is_torchs_encoder_behind_tubelets():
    """torch's own layer is the witness of a block."""
    model = network(CLS_EMBED_ON=True)
    layers = []
    for block in model.blocks:
        layer = nn.TransformerEncoderLayer(
            48, 4, 96, 0.0, "gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
        )
        names = {
            "self_attn.in_proj_weight": block.qkv.weight, "self_attn.in_proj_bias": block.qkv.bias,
            "self_attn.out_proj.weight": block.out.weight, "self_attn.out_proj.bias": block.out.bias,
            "linear1.weight": block.mlp[0].weight, "linear1.bias": block.mlp[0].bias,
            "linear2.weight": block.mlp[2].weight, "linear2.bias": block.mlp[2].bias,
            "norm1.weight": block.norm1.weight, "norm1.bias": block.norm1.bias,
            "norm2.weight": block.norm2.weight, "norm2.bias": block.norm2.bias,
        }  # fmt: skip
        layer.load_state_dict(names)
        layers.append(layer.eval())
    x = clips(FULL)
    # Tubelet by tubelet: time first, then rows, then columns.
    tubes = x.unfold(2, 2, 2).unfold(3, 16, 16).unfold(4, 16, 16).permute(0, 2, 3, 4, 1, 5, 6, 7)
    tokens = tubes.flatten(4).flatten(1, 3) @ model.patches.weight.flatten(1).T + model.patches.bias
    tokens = tokens + model.positions.flatten(2).transpose(1, 2)
    tokens = torch.cat([model.class_token.expand(2, -1, -1), tokens], 1)
    for layer in layers:
        tokens = layer(tokens)
    wanted = model.head(model.norm(tokens)[:, 0])
    torch.testing.assert_close(model(x), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("has_class_token", [False, True])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_positions_are_right_at_every_shape(positions, has_class_token):
    found = check_shapes(network(POSITIONS=positions, CLS_EMBED_ON=has_class_token), SHAPES)
    assert [one.problem for one in found] == [""] * 4
    kind = {"learned": "absolute", "rotary": "relative"}[positions]
    assert {one.positions for one in found} == {(kind, kind)}


def test_a_learned_position_is_that_of_the_same_place_of_the_full_clip():
    """A field that grows linearly along each axis is known everywhere."""
    model = network()
    time, tall, wide = torch.meshgrid(
        *(torch.arange(size) + 0.5 for size in model.full), indexing="ij"
    )
    field = time / 4 + 10 * tall / 4 + 100 * wide / 4
    model.positions.data[:] = field
    for grid in ((2, 2, 2), (4, 2, 2)):
        places = torch.meshgrid(
            *((torch.arange(size) + 0.5) / size for size in grid), indexing="ij"
        )
        wanted = places[0] + 10 * places[1] + 100 * places[2]
        torch.testing.assert_close(model.table(grid)[0, 7], wanted)
    assert model.table(model.full) is model.positions


@pytest.mark.parametrize("grid", [(4, 4, 4), (2, 4, 4), (4, 2, 2), (2, 3, 3)])
def test_a_moving_dot_is_turned_by_as_much_on_every_grid(grid):
    """A dot crosses half of the clip along each axis: rotary positions differ by half of the full clip's."""
    model = network(POSITIONS="rotary")
    turns = model.rotation(grid, torch.device("cpu"))
    angles = torch.atan2(turns.sin, turns.cos).view(*grid, -1)
    # Channels of the slowest pair of each axis: its angle stays below π.
    per_axis = model.head_channels // 2 // 3
    for axis, size in enumerate(grid):
        slowest = angles.movedim(axis, 0)[:, 0, 0, (axis + 1) * per_axis - 1]
        speed = 100.0 ** -((per_axis - 1) / per_axis)
        step = (slowest[-1] - slowest[0]) / (size - 1)
        # From token to token it is full / size tokens of the full clip.
        assert step.item() == pytest.approx(speed * model.full[axis] / size, rel=1e-5)


def test_at_the_full_shape_token_i_turns_by_i():
    """So turns the fastest pair of channels in any rotary network, here along time."""
    turns = network(POSITIONS="rotary").rotation((4, 4, 4), torch.device("cpu"))
    angle = torch.arange(4.0).repeat_interleave(16)
    torch.testing.assert_close(turns.cos[:, 0], angle.cos())
    torch.testing.assert_close(turns.sin[:, 0], angle.sin())


def test_a_shape_that_does_not_divide_is_told():
    with pytest.raises(
        ValueError, match="8 x 45 x 45 does not divide into tubelets of 2 x 16 x 16"
    ):
        network()(clips((8, 45)))
    with pytest.raises(ValueError, match="48 channels do not divide by 5 heads"):
        network(NUM_HEADS=5)
    with pytest.raises(ValueError, match=r"4 channels of a head: rotary .* 6 or more"):
        network(NUM_HEADS=12, POSITIONS="rotary")
    with pytest.raises(ValueError, match=r"7 channels of a head: rotary .* an even number"):
        network(EMBED_DIM=28, NUM_HEADS=4, POSITIONS="rotary")


def test_whole_clips_skip_a_branch_and_the_others_are_scaled():
    layer = DropPath(0.25).train()
    x = torch.rand(4000, 3, 2) + 1
    set_draws(layer, Draws(seed=0, step=0), 4000)
    out = layer(x)
    ratio = out / x
    kept = ratio.flatten(1).amax(1) > 0
    torch.testing.assert_close(ratio[kept], torch.full_like(ratio[kept], 4 / 3))
    assert (ratio[~kept] == 0).all()
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.03)
    assert layer.eval()(x) is x


def test_the_share_grows_from_block_to_block():
    shares = [block.drop1.p for block in network(DEPTH=5, DROPPATH_RATE=0.2).blocks]
    assert shares == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])


def test_gradients_reach_every_parameter():
    model = network(CLS_EMBED_ON=True).train()
    model(clips((4, 48))).square().sum().backward()
    assert [
        name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()
    ] == []
