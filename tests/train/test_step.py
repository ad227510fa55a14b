"""One training step, by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mgexp.errors import TrainingError
from mgexp.train.step import Normalizer, seed_step, train_step

CPU = torch.device("cpu")


def test_pixels_are_normalised_by_channel():
    clips = torch.tensor([0, 255, 51], dtype=torch.uint8).view(1, 3, 1, 1, 1)
    found = Normalizer((0.5, 0.5, 0.0), (0.5, 0.25, 0.1), CPU)(clips)
    torch.testing.assert_close(found.flatten(), torch.tensor([-1.0, 2.0, 2.0]))
    assert clips.flatten().tolist() == [0, 255, 51]


def test_normalised_clips_stay_channels_last():
    clips = torch.zeros(2, 4, 5, 5, 3, dtype=torch.uint8).permute(0, 4, 1, 2, 3)
    found = Normalizer((0.45,) * 3, (0.225,) * 3, CPU)(clips)
    assert found.is_contiguous(memory_format=torch.channels_last_3d)


def test_a_step_goes_down_the_gradient_of_the_mean_loss():
    model = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loss = train_step(
        model, optimizer, torch.tensor([[2.0], [4.0]]), torch.tensor([0, 0]), F.cross_entropy
    )
    assert loss == pytest.approx(0.6931472)
    # softmax minus one-hot is ∓0.5; times the mean input 3
    torch.testing.assert_close(model.weight.data, torch.tensor([[1.5], [-1.5]]))


def test_gradients_of_the_step_before_are_forgotten():
    model = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(model.weight)
    model.weight.grad = torch.full((2, 1), 100.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    train_step(model, optimizer, torch.tensor([[2.0]]), torch.tensor([0]), F.cross_entropy)
    torch.testing.assert_close(model.weight.data, torch.tensor([[1.0], [-1.0]]))


def test_a_loss_that_is_not_finite_stops_before_the_update():
    model = nn.Linear(1, 2)
    before = model.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with pytest.raises(TrainingError, match="nan"):
        train_step(
            model, optimizer, torch.tensor([[float("nan")]]), torch.tensor([0]), F.cross_entropy
        )
    assert torch.equal(model.weight, before)


def test_draws_are_a_function_of_seed_step_and_rank():
    def draw(*key):
        seed_step(*key)
        return torch.rand(1).item()

    keys = [(0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 1), (1, 11, 1), (11, 1, 1)]
    first = [draw(*key) for key in keys]
    assert len(set(first)) == len(keys)
    assert [draw(*key) for key in keys] == first
