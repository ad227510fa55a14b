"""Mixup and CutMix against cross-entropy with soft labels, by hand, and in parts."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mgexp.data.batches import Batch
from mgexp.models.layers import Draws
from mgexp.multigrid.schedule import StepShape
from mgexp.train.mixing import Mixing
from mgexp.train.step import Normalizer, TrainStep, split_problems

DRAWS = Draws(seed=3, step=5)
LABELS = torch.tensor([0, 2, 1, 1, 2, 0])


def clips(num=6, crop=8):
    return torch.rand(num, 3, 2, crop, crop, generator=torch.Generator().manual_seed(0))


def swapped(x):
    return x[[1, 0, 3, 2, 5, 4]]


def test_mixup_blends_neighbours_and_its_loss_is_that_of_soft_labels():
    mixing = Mixing(mixup_alpha=0.8, cutmix_alpha=0.0)
    own, box = mixing.draw(DRAWS, 8)
    assert box is None
    assert 0 < own < 1
    mixed, loss = mixing.apply(F.cross_entropy, DRAWS, clips(), LABELS)
    torch.testing.assert_close(mixed, own * clips() + (1 - own) * swapped(clips()))
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    hot = F.one_hot(LABELS, 3).float()
    soft = own * hot + (1 - own) * swapped(hot)
    torch.testing.assert_close(loss(logits, LABELS), F.cross_entropy(logits, soft))


def test_labels_of_many_classes_blend_too():
    mixing, labels = Mixing(0.8, 0.0), F.one_hot(LABELS, 3).float()
    own, _ = mixing.draw(DRAWS, 8)
    _, loss = mixing.apply(F.binary_cross_entropy_with_logits, DRAWS, clips(), labels)
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    soft = own * labels + (1 - own) * swapped(labels)
    wanted = F.binary_cross_entropy_with_logits(logits, soft)
    torch.testing.assert_close(loss(logits, labels), wanted)


def test_cutmix_takes_a_box_of_the_neighbour_and_counts_its_area():
    mixing, seen = Mixing(0.0, 1.0), 0
    for step in range(20):
        draws = Draws(0, step)
        own, (rows, columns) = mixing.draw(draws, 32)
        mixed, _ = mixing.apply(F.cross_entropy, draws, clips(crop=32), LABELS)
        inside = torch.zeros(32, 32, dtype=torch.bool)
        inside[rows, columns] = True
        assert own == pytest.approx(1 - inside.float().mean().item())
        wanted = torch.where(inside, swapped(clips(crop=32)), clips(crop=32))
        assert torch.equal(mixed, wanted)
        seen += inside.any().item()
    assert seen > 15


def test_weights_follow_the_beta_distribution():
    """α = 1 is uniform: mean 1/2 and variance 1/12. With α = 0.2 the variance is 0.25 / 1.4."""
    for alpha, variance in ((1.0, 1 / 12), (0.2, 0.25 / 1.4)):
        drawn = torch.tensor(
            [Mixing(alpha, 0.0).draw(Draws(0, step), 8)[0] for step in range(2000)]
        )
        assert drawn.mean().item() == pytest.approx(0.5, abs=0.03)
        assert drawn.var().item() == pytest.approx(variance, rel=0.1)


def test_with_both_each_comes_in_half_of_the_steps():
    boxes = [Mixing(0.8, 1.0).draw(Draws(0, step), 8)[1] for step in range(1000)]
    assert sum(box is not None for box in boxes) == pytest.approx(500, abs=60)


def test_a_mini_batch_in_parts_and_the_memory_format_are_the_same():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 2 * 8 * 8, 3))
    batch = Batch((255 * clips()).to(torch.uint8), LABELS, ())
    seen = []
    for max_clips in (0, 2):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        normalizer = Normalizer((0.45,) * 3, (0.2,) * 3, torch.device("cpu"))
        step = TrainStep(
            model, optimizer, F.cross_entropy, normalizer, max_clips, mixing=Mixing(0.8, 1.0)
        )
        step.backward(batch, 3, DRAWS)
        seen.append(model[1].weight.grad.clone())
    torch.testing.assert_close(*seen)
    last = clips().contiguous(memory_format=torch.channels_last_3d)
    mixed, _ = Mixing(0.8, 0.0).apply(F.cross_entropy, DRAWS, last, LABELS)
    assert mixed.is_contiguous(memory_format=torch.channels_last_3d)


def test_odd_mini_batches_are_refused_before_the_run():
    shapes = [StepShape(8, 32, 6, 3), StepShape(8, 32, 3, 1)]
    assert [*split_problems(shapes, 0)] == []
    (problem,) = split_problems(shapes, 0, in_pairs=True)
    assert "AUG.MIXUP_ALPHA and CUTMIX_ALPHA take pairs of clips" in problem
    assert "3x8x32²" in problem
    # Pairs of 5 clips would leave the last clip out of the step.
    odd = StepShape(8, 32, 5, 1)
    (problem,) = split_problems([odd], 2, has_batchnorm=False, in_pairs=True)
    assert "5x8x32² has 5 clips in a process" in problem
