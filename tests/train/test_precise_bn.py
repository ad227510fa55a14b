"""Precise statistics compared with those of the whole population, in float64."""

import pytest
import torch
from tiny import tiny_config
from torch import nn

from mgexp.data.batches import Batch
from mgexp.dist import Processes
from mgexp.models.layers import ClipDropout, Draws, set_draws
from mgexp.multigrid.batchnorm import GroupedBatchNorm3d
from mgexp.train.precise_bn import PreciseBn, precise_requests, with_precise_bn
from mgexp.train.setup import build_row_schedule
from mgexp.train.step import Normalizer

IDENTITY = Normalizer((0.0,) * 3, (1 / 255,) * 3, torch.device("cpu"))


def batch_of(clips):
    return Batch(clips, torch.zeros(len(clips)), ())


def precise(model, batches, *numbers, **draws):
    return with_precise_bn(model, PreciseBn(lambda: batches, *numbers, **draws), IDENTITY)


@pytest.mark.parametrize("num_groups", [1, 2, 4])
def test_statistics_are_those_of_all_batches(num_groups):
    generator = torch.Generator().manual_seed(0)
    draws = [
        torch.randint(0, high, (4, 3, 2, 8, 8), dtype=torch.uint8, generator=generator)
        for high in (50, 100, 250)
    ]
    model = nn.Sequential(GroupedBatchNorm3d(3))
    found = precise(model, map(batch_of, draws), num_groups)
    population = torch.cat(draws).double().transpose(0, 1).flatten(1)
    torch.testing.assert_close(
        found[0].running_mean.double(), population.mean(1), rtol=1e-6, atol=0
    )
    torch.testing.assert_close(
        found[0].running_var.double(), population.var(1, correction=0), rtol=1e-5, atol=0
    )
    assert not found.training


def test_batches_in_parts_are_batches_at_once():
    draws = torch.randint(0, 250, (2, 10, 3, 2, 8, 8), dtype=torch.uint8)
    seen = []

    def found(max_clips):
        model = nn.Sequential(GroupedBatchNorm3d(3))
        model.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
        return precise(model, map(batch_of, draws), 5, max_clips).state_dict()

    torch.testing.assert_close(found(4), found(0))
    assert seen == [2, 4, 4, 2, 4, 4, 10, 10]


def test_a_layer_that_the_network_does_not_use_keeps_its_statistics():
    model = nn.Sequential(GroupedBatchNorm3d(3))
    model[0].unused = GroupedBatchNorm3d(5)
    clips = torch.randint(0, 250, (4, 3, 2, 8, 8), dtype=torch.uint8)
    found = precise(model, [batch_of(clips)], 1)
    mean = clips.double().transpose(0, 1).flatten(1).mean(1)
    torch.testing.assert_close(found[0].running_mean.double(), mean, rtol=1e-6, atol=0)
    assert found[0].unused.running_mean.tolist() == [0.0] * 5


def test_a_layer_that_is_used_twice_has_the_statistics_of_both_uses():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.other, self.norm = GroupedBatchNorm3d(3), GroupedBatchNorm3d(3)

        def forward(self, x):
            return self.norm(self.other(x)) + self.norm(3 * x + 1)

    clips = torch.randint(0, 250, (4, 3, 2, 8, 8), dtype=torch.uint8)
    found = precise(Twice(), [batch_of(clips)] * 2, 1)
    values = clips.double().transpose(0, 1).flatten(1)
    normed = (values - values.mean(1, keepdim=True)) / values.std(1, correction=0, keepdim=True)
    both = torch.cat([normed, 3 * values + 1], dim=1)
    torch.testing.assert_close(found.norm.running_mean.double(), both.mean(1), rtol=1e-5, atol=0)
    torch.testing.assert_close(
        found.norm.running_var.double(), both.var(1, correction=0), rtol=1e-5, atol=0
    )


def test_dropout_before_a_norm_draws_the_same_in_each_evaluation():
    """After a resume the layers have no draws of a last step."""
    batches = [batch_of(torch.full((4, 3, 2, 8, 8), 200, dtype=torch.uint8))]

    def found(last, seed=7):
        model = nn.Sequential(ClipDropout(0.5), RandomDropout(), GroupedBatchNorm3d(3))
        set_draws(model, Draws(seed=0, step=last), 4)
        torch.manual_seed(last)
        return precise(model, batches, 2, draws=Draws(seed=seed, step=0))[2].running_var

    assert torch.equal(found(1), found(2))
    assert not torch.equal(found(1), found(1, seed=8))


class RandomDropout(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.3)


def test_requests_are_full_shape_batches_of_an_epoch_at_most(tmp_path):
    schedule = build_row_schedule(tiny_config(tmp_path), 10)
    found = precise_requests(schedule.recipe, schedule.num_videos, 0, 200, Processes())
    assert [len(batch) for batch in found] == [4, 4, 4]  # ceil(10 / 4)
    assert {(r.frames, r.crop, r.stride_range) for batch in found for r in batch} == {
        (8, 32, (1, 1))
    }
    assert len({request.index for batch in found for request in batch}) == 10
    assert len(precise_requests(schedule.recipe, schedule.num_videos, 0, 2, Processes())) == 2


def test_processes_share_the_batches_of_one(tmp_path):
    schedule = build_row_schedule(tiny_config(tmp_path), 10)
    alone = precise_requests(schedule.recipe, schedule.num_videos, 0, 200, Processes())
    shares = [
        precise_requests(schedule.recipe, schedule.num_videos, 0, 200, Processes(rank, 2))
        for rank in range(2)
    ]
    assert [[*a, *b] for a, b in zip(*shares, strict=True)] == alone


def test_draws_are_not_those_of_training(tmp_path):
    schedule = build_row_schedule(tiny_config(tmp_path), 10)
    (first, *_), (other, *_) = (
        precise_requests(schedule.recipe, schedule.num_videos, seed, 1, Processes())
        for seed in (0, 1)
    )
    assert all(request.seed[0] != 0 for request in first)
    assert [request.seed for request in first] != [request.seed for request in other]
