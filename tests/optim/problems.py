"""Parameters with given gradients, and steps of an optimizer on them."""

from __future__ import annotations

import torch


def draws(num, size, seed=0):
    """Draw lists of numbers. Each list has another scale."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(num, size, generator=generator, dtype=torch.float64)
    return (values * (1 + torch.arange(num)[:, None] % 3)).tolist()


def parameter(values, dtype=torch.float64):
    """Make a parameter of one dimension."""
    return torch.nn.Parameter(torch.tensor(values, dtype=dtype))


def step_with(optimizer, param, gradients, rates):
    """Take a step with each of ``gradients``, at each of ``rates``; return the parameter as a list."""
    for gradient, rate in zip(gradients, rates, strict=True):
        param.grad = torch.tensor(gradient, dtype=param.dtype)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    return param.tolist()


def assert_a_loaded_state_goes_on(make, start, gradients, rates, folder):
    """A state that is saved after four steps and loaded gives the steps of an optimizer that went on."""
    whole, first, second = (parameter(start, torch.float32) for _ in range(3))
    step_with(make([whole]), whole, gradients, rates)
    optimizer, again = make([first]), make([second])
    step_with(optimizer, first, gradients[:4], rates[:4])
    torch.save(optimizer.state_dict(), folder / "state")
    second.data.copy_(first.data)
    again.load_state_dict(torch.load(folder / "state", weights_only=True))
    step_with(again, second, gradients[4:], rates[4:])
    assert torch.equal(second, whole)
