"""LARS compared with numbers by hand, plain Python floats, and torch's SGD."""

import by_hand
import pytest
import torch
from problems import draws, parameter, step_with

from mgexp.optim.large_batch import Lars

NUM_STEPS = 6
RATES = [0.5, 1.0, 1.0, 1.0, 0.1, 0.1]
START, *GRADIENTS = draws(NUM_STEPS + 1, 5)


def test_two_steps_in_numbers_by_hand():
    param = parameter([3.0, 4.0])
    optimizer = Lars([param], 1.0, momentum=0.5, weight_decay=0.1, trust_coefficient=0.01)
    step_with(optimizer, param, [[0.6, 0.8]], [2.0])
    # |w| = 5, |g| = 1: λ = 0.01·5 / 1.5 = 1/30; v = 2/30·(0.6 + 0.3, 0.8 + 0.4)
    assert param.tolist() == pytest.approx([3 - 0.06, 4 - 0.08], rel=1e-12)
    step_with(optimizer, param, [[0.0, 0.0]], [1.0])
    # |g| = 0: λ = 1; v = ½·(0.06, 0.08) + 0.1·w
    wanted = [2.94 - 0.03 - 0.294, 3.92 - 0.04 - 0.392]
    assert param.tolist() == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
def test_lars_is_the_algorithm_of_the_paper(nesterov):
    param = parameter(START)
    keys = {"momentum": 0.9, "nesterov": nesterov, "weight_decay": 0.02}
    optimizer = Lars([param], 1.0, **keys, trust_coefficient=0.05)
    found = step_with(optimizer, param, GRADIENTS, RATES)
    wanted = by_hand.lars(START, GRADIENTS, RATES, 0.9, 0.05, 0.02, nesterov)
    assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
def test_without_trust_ratios_and_at_one_rate_lars_is_sgd(nesterov):
    params = [parameter(START) for _ in range(2)]
    keys = {"momentum": 0.9, "nesterov": nesterov, "weight_decay": 0.02}
    ours = Lars([{"params": params[:1], "adapts": False}], 1.0, **keys)
    theirs = torch.optim.SGD(params[1:], 1.0, **keys)
    found, wanted = (
        step_with(optimizer, param, GRADIENTS, [0.3] * NUM_STEPS)
        for optimizer, param in zip((ours, theirs), params, strict=True)
    )
    assert found == pytest.approx(wanted, rel=1e-12)


def test_each_tensor_has_a_rate_of_its_own():
    """Two tensors in one group: each moves by the same share of its size."""
    params = [parameter(START), parameter([0.01, 0.02])]
    before = [param.detach().clone() for param in params]
    optimizer = Lars(params, 2.0, trust_coefficient=0.01)
    for param, gradient in zip(params, (GRADIENTS[0], [5.0, -7.0]), strict=True):
        param.grad = torch.tensor(gradient, dtype=torch.float64)
    optimizer.step()
    for param, start in zip(params, before, strict=True):
        assert ((start - param).norm() / start.norm()).item() == pytest.approx(0.02)


def test_weights_of_zero_take_the_step_of_momentum():
    param = parameter([0.0, 0.0])
    optimizer = Lars([param], 1.0, trust_coefficient=0.001)
    assert step_with(optimizer, param, [[2.0, -3.0]], [0.1]) == pytest.approx([-0.2, 0.3])


def test_a_parameter_without_gradient_stays():
    params = [parameter(START), parameter(START)]
    optimizer = Lars(params, 1.0, weight_decay=0.1)
    step_with(optimizer, params[0], GRADIENTS, RATES)
    assert params[1].tolist() == START
    assert params[1] not in optimizer.state
