"""The exponential moving average of the weights, which an evaluation then scores and saves."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class WeightAverage:
    """Average the floating-point tensors of a model's state_dict over the steps, with batch-norm statistics.

    Each step the average moves to the weights by 1 − decay. At first the decay is (1 + t) / (10 + t) after t
    steps, so that the average forgets the initial weights (TensorFlow's ExponentialMovingAverage).
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        # The tensors of a state_dict are those of the model itself, so they follow the training.
        state = model.state_dict()
        self._live = {name: value for name, value in state.items() if value.is_floating_point()}
        self.weights = {name: value.clone() for name, value in self._live.items()}

    @torch.no_grad()
    def update(self, num_steps: int) -> None:
        """Move the average after ``num_steps`` steps, 1 or more."""
        decay = min(self.decay, (1 + num_steps) / (10 + num_steps))
        torch._foreach_lerp_([*self.weights.values()], [*self._live.values()], 1 - decay)

    @torch.no_grad()
    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Take saved weights. Raises ValueError if they belong to another model."""
        if saved.keys() != self.weights.keys():
            raise ValueError("the saved average of the weights has other tensors")
        for name, value in self.weights.items():
            value.copy_(saved[name])

    def load_into(self, model: nn.Module) -> None:
        """Copy the average into ``model``, a copy of the one that is averaged."""
        model.load_state_dict({**model.state_dict(), **self.weights})
