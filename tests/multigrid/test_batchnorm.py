"""Grouped batch normalisation against the released code's layers (golden), plain BN, and autograd in float64."""

import copy
import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from several_processes import in_processes
from torch import nn

from mgexp.multigrid.batchnorm import (
    GroupedBatchNorm3d,
    folds,
    group_batchnorm,
    keeping,
    one_sample,
    set_num_groups,
    share_statistics,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "subbn_cases.json"
CASES = json.loads(GOLDEN.read_text())["cases"]
BUFFERS = ("running_mean", "running_var")


def make_norm(channels=3, num_groups=1, momentum=0.1):
    """A float64 layer in training mode whose scale and shift are no one's default."""
    norm = GroupedBatchNorm3d(channels, momentum=momentum).double()
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2.0, channels))
        norm.bias.copy_(torch.linspace(-0.2, 0.1, channels))
    norm.num_groups = num_groups
    return norm


def make_clips(clips, channels=3, seed=0, dtype=torch.float64):
    """Clips whose means differ, so that groups matter."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(clips, channels, 2, 3, 3, generator=generator, dtype=dtype)
    return x + torch.arange(clips, dtype=dtype).view(-1, 1, 1, 1, 1) / 4


def normalize_blocks(x, weight, bias, num_groups):
    """The witness: F.batch_norm of each block alone."""
    blocks = x.split(x.shape[0] // num_groups)
    return torch.cat([F.batch_norm(b, None, None, weight, bias, training=True) for b in blocks])


@pytest.fixture(params=[False, True], ids=["one_by_one", "at_once"])
def way(request, monkeypatch):
    """Both ways to normalise groups, whatever the device and their number."""
    monkeypatch.setattr("mgexp.multigrid.batchnorm.folds", lambda device: request.param)


@pytest.fixture(params=CASES, ids=lambda case: f"{case['n']}clips-{case['num_splits']}groups")
def released(request):
    """(layer, clips, their first training output, running mean after two steps) of SubBatchNorm3d.

    Its split j is the samples j, j + k, …: the clips are sorted so that splits are contiguous blocks.
    """
    case = request.param
    num_splits, clips = case["num_splits"], case["n"]
    order = torch.arange(clips).view(-1, num_splits).t().flatten()
    shape = (clips, 3, 2, 2, 2)
    x = torch.tensor(case["x"], dtype=torch.float64).view(shape)[order]
    y = torch.tensor(case["y_train_first"], dtype=torch.float64).view(shape)[order]
    norm = make_norm(num_groups=num_splits, momentum=case["momentum"])
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 0.5, 2.0]))
        norm.bias.copy_(torch.tensor([0.0, 0.1, -0.2]))
    return norm, x, y, torch.tensor(case["agg_mean"], dtype=torch.float64)


@pytest.mark.usefixtures("way")
def test_training_output_equals_released_code(released):
    norm, x, y, _ = released
    torch.testing.assert_close(norm(x), y, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("way")
def test_running_mean_equals_released_code(released):
    norm, x, _, mean = released
    norm(x)
    norm(0.5 * x)
    torch.testing.assert_close(norm.running_mean, mean, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("num_groups", [2, 4])
def test_gradients_equal_batch_norm_of_each_block(num_groups):
    norm = make_norm(num_groups=num_groups)
    x = make_clips(8).requires_grad_()
    grad = make_clips(8, seed=1)
    wanted = torch.autograd.grad(
        normalize_blocks(x, norm.weight, norm.bias, num_groups), (x, norm.weight, norm.bias), grad
    )
    got = torch.autograd.grad(norm(x), (x, norm.weight, norm.bias), grad)
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("way")
def test_a_layer_that_is_used_twice_in_a_step():
    """The two uses have different clips. Their gradients add up, and the statistics move twice."""
    norm = make_norm(num_groups=4)
    x = make_clips(8).requires_grad_()
    grad = make_clips(8, seed=1)
    inputs = (x, norm.weight, norm.bias)

    def witness(clips):
        return normalize_blocks(clips, norm.weight, norm.bias, 4)

    wanted = torch.autograd.grad(witness(x) + witness(3 * x.square()), inputs, grad)
    got = torch.autograd.grad(norm(x) + norm(3 * x.square()), inputs, grad)
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11)
    means = [use.detach().mean((0, 2, 3, 4)) for use in (x, 3 * x.square())]
    torch.testing.assert_close(norm.running_mean, 0.09 * means[0] + 0.1 * means[1])


def test_only_a_compiler_for_a_gpu_sees_all_groups_at_once(monkeypatch):
    assert not folds(torch.device("cuda"))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert folds(torch.device("cuda"))
    assert not folds(torch.device("cpu"))


def test_a_large_mean_costs_no_more_digits_at_once(monkeypatch):
    """Clips with mean 100 and deviation 1 in fp32: each way is compared with float64."""
    errors = []
    for at_once in (False, True):
        monkeypatch.setattr("mgexp.multigrid.batchnorm.folds", lambda *_, way=at_once: way)
        norm = make_norm(num_groups=4)
        x = make_clips(8) + 100
        exact = norm(x)
        errors.append((norm.float()(x.float()) - exact).abs().max().item())
    assert errors[1] <= 2 * errors[0]


@pytest.mark.usefixtures("way")
def test_gradients_equal_finite_differences():
    norm = make_norm(channels=2, num_groups=2)
    x = make_clips(4, channels=2).requires_grad_()

    # The parameters are perturbed in place: the layer need not be given them.
    inputs = (x, norm.weight, norm.bias)
    assert torch.autograd.gradcheck(lambda x, *_: norm(x), inputs)


@pytest.mark.usefixtures("way")
def test_channels_last_gives_the_same_values_and_stays():
    results = []
    for memory_format in (torch.contiguous_format, torch.channels_last_3d):
        norm = make_norm(channels=16, num_groups=4).float()
        x = make_clips(8, channels=16, dtype=torch.float32).to(memory_format=memory_format)
        y = norm(x.requires_grad_())
        y.backward(make_clips(8, 16, seed=1, dtype=torch.float32).to(memory_format=memory_format))
        assert y.is_contiguous(memory_format=memory_format)
        assert x.grad.is_contiguous(memory_format=memory_format)
        results.append((y, x.grad, norm.weight.grad, norm.bias.grad, norm.running_var))
    for contiguous, channels_last in zip(*results, strict=True):
        torch.testing.assert_close(contiguous, channels_last, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("way")
def test_running_statistics_by_hand():
    # Two groups of two values: (0, 2) has mean 1 and unbiased variance 2, (4, 10) has 7 and 18.
    norm = GroupedBatchNorm3d(1)
    norm.num_groups = 2
    norm(torch.tensor([0.0, 2.0, 4.0, 10.0]).view(4, 1, 1, 1, 1))
    # mean of the means 4; mean of the variances 10 + variance of the means 9
    assert norm.running_mean.item() == pytest.approx(0.9 * 0 + 0.1 * 4)
    assert norm.running_var.item() == pytest.approx(0.9 * 1 + 0.1 * 19)
    assert norm.num_batches_tracked.item() == 1


@pytest.mark.usefixtures("way")
def test_running_statistics_without_momentum_are_averages_over_all_steps():
    norm = make_norm(num_groups=2, momentum=None)
    batches = [make_clips(4, seed=seed) for seed in range(3)]
    for x in batches:
        norm(x)
    wanted = torch.stack([x.mean((0, 2, 3, 4)) for x in batches]).mean(0)
    torch.testing.assert_close(norm.running_mean, wanted, rtol=1e-12, atol=0)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_one_group_is_plain_batch_norm_to_the_bit(momentum):
    norm = GroupedBatchNorm3d(3, momentum=momentum)
    plain = nn.BatchNorm3d(3, momentum=momentum)
    for seed in range(2):
        x = make_clips(4, seed=seed, dtype=torch.float32)
        assert torch.equal(norm(x), plain(x))
    for name, value in plain.state_dict().items():
        assert torch.equal(norm.state_dict()[name], value), name


def test_evaluation_is_plain_batch_norm_whatever_the_groups():
    norm = make_norm(num_groups=4)
    norm(make_clips(8))
    plain = nn.BatchNorm3d(3).double().eval()
    plain.load_state_dict(norm.state_dict())
    x = make_clips(3)  # three clips do not divide into four groups
    assert torch.equal(norm.eval()(x), plain(x))


def test_checkpoints_of_plain_batch_norm_load_both_ways():
    norm, plain = make_norm(num_groups=2), nn.BatchNorm3d(3).double()
    assert list(norm.state_dict()) == list(plain.state_dict())
    norm(make_clips(4))
    plain.load_state_dict(norm.state_dict(), strict=True)
    assert torch.equal(plain.running_var, norm.running_var)
    plain(make_clips(4))
    norm.load_state_dict(plain.state_dict(), strict=True)
    assert torch.equal(norm.running_var, plain.running_var)


@pytest.mark.usefixtures("way")
def test_clips_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="6 clips do not divide into 4 BN groups"):
        make_norm(num_groups=4)(make_clips(6))


def test_set_num_groups_reaches_every_layer_of_a_model():
    inner = nn.Sequential(nn.Conv3d(3, 4, 1, bias=False), GroupedBatchNorm3d(4))
    model = nn.Sequential(GroupedBatchNorm3d(3), inner).double()
    set_num_groups(model, 2)
    x = make_clips(4)
    blocks = normalize_blocks(x, None, None, 2)
    wanted = normalize_blocks(inner[0](blocks), None, None, 2)
    torch.testing.assert_close(model(x), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("num_groups", "said"),
    [(0, "is 0"), (-1, "is -1"), (-2, "cannot span 2 processes: there are 1")],
)
def test_numbers_that_are_no_group_count_are_refused(num_groups, said):
    with pytest.raises(ValueError, match=said):
        set_num_groups(make_norm(), num_groups)


def test_a_group_of_one_value_is_refused_at_once_as_one_by_one(monkeypatch):
    layer = group_batchnorm(nn.BatchNorm3d(2))
    set_num_groups(layer, 4)
    for at_once in (False, True):
        monkeypatch.setattr("mgexp.multigrid.batchnorm.folds", lambda *_, way=at_once: way)
        with pytest.raises(ValueError, match="value per channel"):
            layer(torch.randn(4, 2, 1, 1, 1))


def train_once(norm, x, grad):
    """One step: (output, gradients of clips, weight and bias, running statistics)."""
    x = x.clone().requires_grad_()
    y = norm(x)
    y.backward(grad)
    return y.detach(), x.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var


def train_block(processes, folder, span):
    """What one of several processes does: a step on its block of the clips."""
    norm = make_norm()
    set_num_groups(norm, -span)
    norm = copy.deepcopy(norm)  # as precise BN does
    x, grad = (make_clips(8, seed=seed).chunk(processes.count)[processes.rank] for seed in (0, 1))
    return train_once(norm, x, grad)


@pytest.mark.slow
@pytest.mark.parametrize(("num_processes", "span"), [(2, 2), (4, 2), (4, 4)])
def test_groups_over_processes_equal_groups_in_one_process(num_processes, span, tmp_path):
    parts = in_processes(train_block, num_processes, tmp_path, span)
    outputs, grads, weight_grads, bias_grads, *_ = zip(*parts, strict=True)

    one = make_norm(num_groups=num_processes // span)
    wanted = train_once(one, make_clips(8), make_clips(8, seed=1))
    # Parameters: DDP reduces the gradients of the processes, here by their sum.
    got = (torch.cat(outputs), torch.cat(grads), sum(weight_grads), sum(bias_grads))
    for mine, theirs in zip(got, wanted, strict=False):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    for part in parts:
        for mine, theirs in zip(part[4:], wanted[4:], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("num_groups", [1, 4])
def test_bf16_clips_have_fp32_statistics(num_groups):
    """Of the same bf16 clips; sums of 72 values in fp32 are good to 1e-5, bf16 ones would be to 4e-3."""
    x = make_clips(8, channels=16, dtype=torch.bfloat16)
    norms = [GroupedBatchNorm3d(16), GroupedBatchNorm3d(16)]
    for norm in norms:
        norm.num_groups = num_groups
    with torch.autocast("cpu", torch.bfloat16):
        low = norms[0](x)
    exact = norms[1](x.float())
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), exact, rtol=2**-8, atol=1e-5)  # rounding of the output
    for name in BUFFERS:
        found, wanted = (getattr(norm, name) for norm in norms)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def share_block(processes, folder):
    """What one of two processes has after three steps on its half of the clips, in groups of its own."""
    return statistics_after(lambda seed: make_clips(8, seed=seed).chunk(2)[processes.rank], 2)


def statistics_after(clips_of, num_groups):
    """Running statistics of two layers of different width after three steps."""
    model = nn.Sequential(make_norm(), nn.Conv3d(3, 5, 1).double(), make_norm(5))
    nn.init.constant_(model[1].weight, 0.3)
    nn.init.zeros_(model[1].bias)
    set_num_groups(model, num_groups)
    for seed in range(3):
        model(clips_of(seed))
        share_statistics(model)
    return [getattr(model[place], name) for place in (0, 2) for name in BUFFERS]


@pytest.mark.slow
def test_shared_statistics_are_those_of_the_groups_of_all_processes(tmp_path):
    first, second = in_processes(share_block, 2, tmp_path)
    wanted = statistics_after(lambda seed: make_clips(8, seed=seed), 4)
    for one, other, alone in zip(first, second, wanted, strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, alone, rtol=1e-12, atol=1e-12)


def test_one_process_has_nothing_to_share():
    norm = make_norm()
    norm(make_clips(4))
    before = norm.running_var.clone()
    share_statistics(norm)
    assert torch.equal(norm.running_var, before)


@pytest.mark.parametrize("momenta", [(0.1, 0.2), (None, None), (0.0, 0.0)])
def test_statistics_of_several_momenta_or_none_cannot_be_shared(momenta, monkeypatch):
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match="one momentum above 0"):
        share_statistics(nn.Sequential(*(make_norm(momentum=one) for one in momenta)))


def test_passes_inside_a_block_that_keeps_move_nothing():
    norm, x = make_norm(), make_clips(8)
    with keeping(norm) as (layer,):
        with keeping(norm):
            norm(x)
        assert layer.kept == []
        with one_sample(norm):
            norm(x)
    assert norm.kept is None and norm.running_mean.abs().sum() == 0


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("num_groups", [1, 4])
def test_kept_statistics_move_nothing(num_groups):
    norm = make_norm(num_groups=num_groups)
    x = make_clips(8)
    with keeping(norm) as (layer,):
        norm(x)
        (found,) = layer.kept
    assert norm.kept is None and norm.running_mean.abs().sum() == 0
    blocks = torch.stack(x.chunk(num_groups)).transpose(1, 2).flatten(2)
    assert found.num_values == blocks.shape[2]
    torch.testing.assert_close(found.means, blocks.mean(2))
    torch.testing.assert_close(found.biased_variances(), blocks.var(2, correction=0))
