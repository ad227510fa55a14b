"""Parameters with given gradients, and steps of an optimizer on them."""

import torch


def draws(num, size, seed=0):
    """Draw lists of numbers. Each list has another scale."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(num, size, generator=generator, dtype=torch.float64)
    return (values * (1 + torch.arange(num)[:, None] % 3)).tolist()


def parameter(values, dtype=torch.float64):
    return torch.nn.Parameter(torch.tensor(values, dtype=dtype))


def step_with(optimizer, param, gradients, rates):
    """Take a step with each of ``gradients``, at each of ``rates``; return the parameter as a list."""
    for gradient, rate in zip(gradients, rates, strict=True):
        param.grad = torch.tensor(gradient, dtype=param.dtype)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    return param.tolist()
