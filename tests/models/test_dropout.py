"""Dropout by clip: the same mask however a mini-batch is shared, and masks that look random."""

import copy

import pytest
import torch
from tiny import tiny_config
from torch import nn

from mgexp.models.build import build_network
from mgexp.models.layers import BITS, ClipDropout, Draws, drop_by_clip, mix, set_draws


def masks(clips, values, step=0, seed=0, first_clip=0, rate=0.5, layer=0):
    """(clips, values) of bools: what is kept."""
    dropout = ClipDropout(rate)
    dropout.set_draws(Draws(seed, step, first_clip), clips, layer)
    return dropout.kept(torch.empty(clips, values))


def lowbias32(x):
    """As its author writes it, in whole numbers of 32 bits."""
    x ^= x >> 16
    x = x * 0x7FEB352D & BITS
    x ^= x >> 15
    x = x * 0x846CA68B & BITS
    return x ^ x >> 16


def test_the_hash_is_lowbias32():
    numbers = [0, 1, 2, 0x7FFFFFFF, 0x80000000, BITS, 0xDEADBEEF, 12345]
    assert mix(torch.tensor(numbers)).tolist() == [lowbias32(x) for x in numbers]


@pytest.mark.parametrize("num_parts", [1, 2, 4, 16])
def test_masks_do_not_depend_on_how_the_mini_batch_is_shared(num_parts):
    whole = masks(16, 100)
    share = 16 // num_parts
    parts = [masks(share, 100, first_clip=part * share) for part in range(num_parts)]
    assert torch.equal(torch.cat(parts), whole)


def test_frames_as_rows_do_not_depend_on_how_the_mini_batch_is_shared():
    """A network of 2D convolutions has (clips · frames) rows."""

    def rows(num_clips, first_clip):
        dropout = ClipDropout(0.5)
        dropout.set_draws(Draws(0, 0, first_clip), num_clips, 0)
        return dropout.kept(torch.empty(3 * num_clips, 50))

    assert torch.equal(torch.cat([rows(2, 0), rows(2, 2)]), rows(4, 0))


def test_masks_are_a_function_of_seed_step_clip_and_layer():
    keys = [{}, {"seed": 1}, {"step": 1}, {"first_clip": 1}, {"layer": 1}]
    found = [masks(1, 64, **key) for key in keys]
    assert len({tuple(mask.flatten().tolist()) for mask in found}) == len(keys)
    assert all(
        torch.equal(masks(1, 64, **key), mask) for key, mask in zip(keys, found, strict=True)
    )


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_the_kept_share_is_that_of_fair_draws(rate):
    """Of 2,304,000 draws: within 4 standard deviations."""
    kept = masks(1000, 2304, rate=rate)
    deviation = (rate * (1 - rate) / kept.numel()) ** 0.5
    assert kept.double().mean().item() == pytest.approx(1 - rate, abs=4 * deviation)


@pytest.mark.parametrize("along", ["clips", "steps", "values"])
def test_neighbours_are_independent(along):
    """Of 1,000 × 2,000 pairs: those that agree are half, within 4 standard deviations."""
    if along == "steps":
        found = torch.cat([masks(1, 2000, step=step) for step in range(1001)])
    elif along == "clips":
        found = masks(1001, 2000)
    else:
        found = masks(2000, 1001).T
    agree = (found[1:] == found[:-1]).double().mean().item()
    assert agree == pytest.approx(0.5, abs=4 * 0.5 / 2e6**0.5)


@pytest.mark.parametrize("dim", [0, 1])
def test_counts_scatter_as_fair_draws_do(dim):
    """Pearson's χ² of what is kept in each clip, and of each value: its deviation over √(2 n) is within 4."""
    kept = masks(2000, 2000).double()
    counts = kept.sum(dim)
    chi2 = ((counts - 1000) ** 2 / 500).sum().item()
    assert abs(chi2 - 2000) / (2 * 2000) ** 0.5 < 4


def test_it_scales_what_it_keeps_and_so_its_gradient():
    dropout = ClipDropout(0.2)
    dropout.set_draws(Draws(0, 0), 4, 0)
    x = torch.randn(4, 8, 1, 1, 1, requires_grad=True)
    out = dropout(x)
    out.sum().backward()
    wanted = dropout.kept(x) / 0.8
    torch.testing.assert_close(out, x * wanted)
    torch.testing.assert_close(x.grad, wanted)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_nothing_and_everything_can_be_dropped(rate):
    x = torch.ones(2, 5)
    assert ClipDropout(rate)(x).sum() == 10 * (1 - rate)


def test_evaluation_drops_nothing_and_the_state_is_plain():
    dropout, x = ClipDropout(0.5).eval(), torch.randn(2, 3)
    assert dropout(x) is x
    assert dropout.state_dict() == {}


def test_bf16_stays_bf16():
    x = torch.ones(4, 50, dtype=torch.bfloat16)
    assert ClipDropout(0.5)(x).dtype == torch.bfloat16


def test_it_compiles_once_for_all_steps():
    dropout = ClipDropout(0.5)
    compiled = torch.compile(copy.deepcopy(dropout), fullgraph=True, backend="eager")
    x = torch.randn(4, 6)
    with torch._dynamo.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True):
        for step in range(3):
            for one in (dropout, compiled):
                set_draws(one, Draws(0, step, 4), 4)
            assert torch.equal(compiled(x), dropout(x))
    torch._dynamo.reset()


def test_every_layer_of_a_model_has_masks_of_its_own():
    model = drop_by_clip(nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.25))))
    assert [model[0].p, model[1][0].p] == [0.5, 0.25]
    set_draws(model, Draws(3, 4, 5), 2)
    keys = {tuple(layer.draws.tolist()) for layer in (model[0], model[1][0])}
    assert len(keys) == 2 and {key[2] for key in keys} == {5}


def test_a_layer_with_two_names_drops_by_clip_under_both():
    model = nn.Sequential(nn.Dropout(0.5))
    model.again = model[0]
    assert {type(layer) for layer in drop_by_clip(model)._modules.values()} == {ClipDropout}


@pytest.mark.parametrize("name", ["SlowFast", "I3D", "C2D", "Slow", "TSM"])
def test_heads_of_all_our_models_drop_by_clip(name, tmp_path):
    depth = 18 if name == "SlowFast" else 50
    cfg = tiny_config(tmp_path, {"MODEL.MODEL_NAME": name, "RESNET.DEPTH": depth})
    with torch.device("meta"):
        model = build_network(cfg)
    kinds = [type(module) for module in model.modules() if isinstance(module, nn.Dropout)]
    assert kinds == [ClipDropout]
