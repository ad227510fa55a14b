"""The average of the weights, by hand in float64."""

import pytest
import torch
from torch import nn

from mgexp.train.checkpoint import WeightAverage


def test_the_average_is_that_of_its_recurrence():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).double()
    average = WeightAverage(model, decay=0.5)
    wanted = {name: x.clone() for name, x in model.state_dict().items() if x.is_floating_point()}
    assert "1.running_var" in wanted
    assert "1.num_batches_tracked" not in wanted
    # (1 + t) / (10 + t) is 2/11, 3/12, … and reaches the decay of 0.5 at t = 8.
    for step in range(1, 13):
        state = model.state_dict()
        for number, name in enumerate(wanted):
            state[name].add_(step + number)
        decay = min(0.5, (1 + step) / (10 + step))
        wanted = {name: decay * x + (1 - decay) * state[name] for name, x in wanted.items()}
        average.update(step)
    for name, value in wanted.items():
        torch.testing.assert_close(average.weights[name], value, rtol=1e-12, atol=0)
    copy = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).double()
    average.load_into(copy)
    assert torch.equal(copy[0].weight, average.weights["0.weight"])


def test_an_average_of_another_model_is_refused():
    average = WeightAverage(nn.Linear(2, 2), 0.9)
    with pytest.raises(ValueError, match="other tensors"):
        average.load({"bias": torch.zeros(2)})
