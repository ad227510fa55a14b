"""The gradient noise scale against closed forms, and by exact enumeration."""

import itertools
import json

import gradient_noise
import pytest
import torch
import torch.nn.functional as F
from gradient_noise import NUM_GROUPS, gradient_and_noise, measure_noise, noise_scale
from tiny import data_keys, write_config
from torch import nn

from mgexp.data.batches import Batch
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d
from mgexp.train.step import Normalizer, TrainStep

VALUES = torch.tensor([[1.0, 0.0], [3.0, -2.0], [0.5, 4.0]], dtype=torch.float64)
"""Gradients of the three clips of a tiny data set."""


def squares_by_enumeration(num_drawn):
    """The mean squared norm of the mean of ``num_drawn`` clips, over all ways to draw them with replacement."""
    draws = itertools.product(range(3), repeat=num_drawn)
    norms = [VALUES[list(draw)].mean(0).square().sum() for draw in draws]
    return float(torch.stack(norms).mean())


@pytest.mark.parametrize(("small", "big"), [(1, 2), (1, 4), (2, 3), (2, 6)])
def test_gradient_and_noise_have_no_bias(small, big):
    mean = VALUES.mean(0)
    gradient, noise = gradient_and_noise(
        squares_by_enumeration(small), squares_by_enumeration(big), small, big
    )
    assert gradient == pytest.approx(float(mean.square().sum()))
    assert noise == pytest.approx(float((VALUES - mean).square().sum(1).mean()))


def blocks_of(gradients, num_groups):
    """Sums and squares of blocks of ``num_groups`` gradients."""
    blocks = gradients.split(num_groups)
    return [block.sum(0) for block in blocks], [float(block.square().sum()) for block in blocks]


def batch_of_group(generator, clips=4):
    """Random clips and labels of one BN group."""
    pixels = torch.randint(0, 256, (clips, 3, 2, 4, 4), dtype=torch.uint8, generator=generator)
    return Batch(pixels, torch.randint(0, 3, (clips,), generator=generator), ())


def test_the_noise_of_a_network_is_that_of_its_gradients():
    """A BN layer between two others: each group by itself, and weights and statistics stay as they are."""
    torch.manual_seed(0)
    model = nn.Sequential(
        GroupedBatchNorm3d(3), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(3, 3)
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    batches = [batch_of_group(generator) for _ in range(3 * NUM_GROUPS)]
    normalizer = Normalizer((0.5,) * 3, (0.25,) * 3, torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    step = TrainStep(model, optimizer, F.cross_entropy, normalizer)
    found = measure_noise(step, batches, clips=4)
    gradients = []
    for batch in batches:
        shown = batch.clips / 127.5 / 0.5 - 2
        shown = F.batch_norm(shown, None, None, model[0].weight, model[0].bias, training=True)
        loss = F.cross_entropy(model[1:](shown), batch.labels)
        parts = torch.autograd.grad(loss, model.parameters())
        gradients.append(torch.cat([part.flatten() for part in parts]).double())
    wanted = noise_scale(
        *blocks_of(torch.stack(gradients), NUM_GROUPS), num_groups=NUM_GROUPS, clips=4
    )
    assert (found.clips, found.error) == pytest.approx((wanted.clips, wanted.error), rel=1e-3)
    assert found.num_clips == 3 * NUM_GROUPS * 4
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_tool_measures_before_and_after_some_steps(tiny_data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gradient_noise, "NUM_GROUPS", 2)
    monkeypatch.setattr(gradient_noise, "NUM_STEPS", 3)
    row = write_config(tmp_path / "tiny.yaml", data_keys(tiny_data))
    assert gradient_noise.main(["--cfg", str(row), "--json"]) == 0
    assert [one["steps"] for one in json.loads(capsys.readouterr().out)] == [0, 3]
