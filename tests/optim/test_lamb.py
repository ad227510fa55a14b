"""LAMB and PMD-LAMB compared with plain loops over numbers, and their moments over a period."""

import math

import by_hand
import pytest
import torch
from problems import draws, parameter, step_with

from mgexp.optim.large_batch import Lamb, coefficient

NUM_STEPS = 7
RATES = [0.01, 0.02, 0.03, 0.03, 0.03, 0.003, 0.003]
START, *GRADIENTS = draws(NUM_STEPS + 1, 5)


def test_two_steps_in_numbers_by_hand():
    param = parameter([3.0, 4.0])
    optimizer = Lamb([param], lr=0.1, betas=(0.5, 0.5), eps=1e-12)
    step_with(optimizer, param, [[1.0, -1.0]], [0.1])
    # the first update is the signs: |u| = √2, |w| = 5
    reach = 0.1 * 5 / math.sqrt(2)
    assert param.tolist() == pytest.approx([3 - reach, 4 + reach], rel=1e-10)
    before = param.tolist()
    step_with(optimizer, param, [[3.0, -1.0]], [0.1])
    # m = (½·½·1 + ½·3) / ¾ = 7/3 and −1, v = (¼·1 + ½·9) / ¾ = 19/3 and 1
    update = [7 / 3 / math.sqrt(19 / 3), -1.0]
    reach = 0.1 * math.hypot(*before) / math.hypot(*update)
    wanted = [w - reach * u for w, u in zip(before, update, strict=True)]
    assert param.tolist() == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_lamb_is_the_algorithm_of_the_paper(decay):
    param = parameter(START)
    found = step_with(Lamb([param], 1.0, weight_decay=decay), param, GRADIENTS, RATES)
    wanted = by_hand.lamb(START, GRADIENTS, RATES, decay=decay)
    assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("curve", ["cosine", "linear"])
def test_pmd_lamb_is_lamb_with_factors_of_its_betas(curve):
    param, period = parameter(START), 3
    optimizer = Lamb([param], 1.0, weight_decay=0.1, period=period, curve=curve)
    found = step_with(optimizer, param, GRADIENTS, RATES)
    factors = [1.0, 0.5, 0.0] * 3  # both curves, at the start, the middle and the end of a period
    by = {"decay": 0.1, "factors": factors[:NUM_STEPS], "period": period}
    wanted = by_hand.lamb(START, GRADIENTS, RATES, **by)
    assert found == pytest.approx(wanted, rel=1e-12)


def test_a_long_first_period_is_corrected_for_its_start():
    """No factor is 0 here, so the whole correction by the product of the rates takes part."""
    param, period = parameter(START), 40
    optimizer = Lamb([param], 1.0, period=period, curve="cosine")
    found = step_with(optimizer, param, GRADIENTS, RATES)
    factors = [(1 + math.cos(math.pi * step / 39)) / 2 for step in range(NUM_STEPS)]
    wanted = by_hand.lamb(START, GRADIENTS, RATES, factors=factors)
    assert found == pytest.approx(wanted, rel=1e-12)


def test_a_change_of_rates_is_corrected_by_what_they_were():
    """Rates may change at a resume with other keys. The weights of the gradients in a moment still sum to 1."""
    param = parameter(START)
    optimizer = Lamb([param], 1.0, betas=(0.5, 0.5))
    step_with(optimizer, param, GRADIENTS[:2], RATES[:2])
    optimizer.param_groups[0].update(betas=(0.9, 0.999), period=40, curve="linear")
    found = step_with(optimizer, param, GRADIENTS[2:4], RATES[2:4])
    kept = [1 - step / 39 for step in (2, 3)]
    betas = [(0.5, 0.5), (0.5, 0.5), *((0.9 * c, 0.999 * c) for c in kept)]
    assert found == pytest.approx(by_hand.lamb(START, GRADIENTS[:4], RATES, betas), rel=1e-12)


def test_without_trust_ratios_lamb_is_adamw():
    params = [parameter(START) for _ in range(2)]
    ours = Lamb([{"params": params[:1], "adapts": False}], 1.0, eps=1e-8, weight_decay=0.1)
    theirs = torch.optim.AdamW(params[1:], eps=1e-8, weight_decay=0.1)
    found, wanted = (
        step_with(optimizer, param, GRADIENTS, RATES)
        for optimizer, param in zip((ours, theirs), params, strict=True)
    )
    assert found == pytest.approx(wanted, rel=1e-12)


def test_each_tensor_has_a_ratio_of_its_own():
    """Two tensors in one group: each moves as it would alone."""
    starts, gradients = [START, [0.01, 0.02]], [GRADIENTS[0], [5.0, -7.0]]
    params = [parameter(start) for start in starts]
    optimizer = Lamb(params, lr=0.1)
    for param, gradient in zip(params, gradients, strict=True):
        param.grad = torch.tensor(gradient, dtype=torch.float64)
    optimizer.step()
    for param, start, gradient in zip(params, starts, gradients, strict=True):
        assert param.tolist() == pytest.approx(by_hand.lamb(start, [gradient], [0.1]), rel=1e-12)
        moved = torch.tensor(start, dtype=torch.float64) - param.detach()
        assert moved.norm().item() == pytest.approx(0.1 * by_hand.norm(start))


def test_weights_of_zero_take_the_step_of_adam():
    param = parameter([0.0, 0.0])
    assert step_with(Lamb([param], 1.0, eps=1e-12), param, [[2.0, -3.0]], [0.1]) == pytest.approx(
        [-0.1, 0.1]
    )


def test_a_gradient_of_zero_moves_nothing():
    param = parameter(START)
    assert step_with(Lamb([param], 1.0), param, [[0.0] * 5], [0.1]) == START


def test_a_parameter_without_gradient_keeps_its_place_in_the_period():
    """Each parameter counts its own steps for its moments and its period."""
    late, always = parameter(START), parameter(START)
    optimizer = Lamb([late, always], 0.01, period=3)
    for step, gradient in enumerate(GRADIENTS):
        always.grad = torch.tensor(gradient, dtype=torch.float64)
        late.grad = always.grad.clone() if step >= 2 else None
        optimizer.step()
    rates, factors = [0.01] * NUM_STEPS, [1.0, 0.5, 0.0] * 3
    wanted = by_hand.lamb(
        START, GRADIENTS[2:], rates[2:], factors=factors[: NUM_STEPS - 2], period=3
    )
    assert late.tolist() == pytest.approx(wanted, rel=1e-12)
    wanted = by_hand.lamb(START, GRADIENTS, rates, factors=factors[:NUM_STEPS], period=3)
    assert always.tolist() == pytest.approx(wanted, rel=1e-12)


def test_a_step_returns_the_loss_of_its_closure():
    param = parameter([1.0])

    def loss():
        param.grad = None
        value = param.square().sum()
        value.backward()
        return value

    assert Lamb([param], 0.5).step(loss).item() == 1.0
    assert param.item() == pytest.approx(0.5, rel=1e-5)


def test_the_curves_by_hand():
    assert [coefficient(step, 5, "linear") for step in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.0]
    root = math.sqrt(0.5)
    wanted = [1, (1 + root) / 2, 0.5, (1 - root) / 2, 0]
    assert [coefficient(step, 5, "cosine") for step in range(5)] == pytest.approx(wanted)
