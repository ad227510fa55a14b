"""Accuracy over views: scores and labels by hand."""

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.train.evaluate import Scores, evaluate
from mgexp.train.step import Normalizer

CPU = torch.device("cpu")
IDENTITY = Normalizer((0.0,), (1 / 255,), CPU)


@dataclass
class Views:
    clips: torch.Tensor
    videos: torch.Tensor
    labels: torch.Tensor
    errors: tuple = ()


class FirstPixels(nn.Module):
    """Logits are the first pixels of a clip."""

    def forward(self, clips):
        return clips[:, 0, 0, 0, :3]


def views(rows, videos, labels, errors=()):
    clips = torch.tensor(rows, dtype=torch.uint8).view(len(rows), 1, 1, 1, -1)
    return Views(clips, torch.tensor(videos), torch.tensor(labels), errors)


def test_softmax_scores_of_the_views_are_summed():
    """Views of video 0 say class 0 strongly and class 1 twice weakly: the sum of scores is class 1's."""
    batches = [
        views([[9, 0, 0], [0, 9, 0]], [0, 1], [1, 0]),
        views([[0, 2, 0], [0, 2, 0]], [0, 0], [1, 1]),
    ]
    found = evaluate(FirstPixels(), batches, 2, 3, IDENTITY, Processes())
    assert (found.top1, found.top5, found.num_videos) == (50.0, 100.0, 2)
    logits = torch.tensor([[9.0, 0, 0], [0, 9, 0], [0, 2, 0], [0, 2, 0]])
    wanted = F.cross_entropy(logits, torch.tensor([1, 0, 1, 1])).item()
    assert found.loss == pytest.approx(wanted, rel=1e-6)


def test_top5_of_more_than_five_classes():
    scores = Scores(2, 7, CPU)
    logits = torch.arange(7.0).repeat(2, 1)  # best five: classes 6, 5, 4, 3, 2
    scores.add(logits, torch.tensor([0, 1]), torch.tensor([2, 1]))
    found = scores.reduce(Processes())
    assert (found.top1, found.top5) == (0.0, 50.0)


def test_what_is_confused_is_counted_from_the_summed_scores():
    """By hand: two views of video 0 outweigh the first; the counts agree with top-1, 1 of 3."""
    scores = Scores(3, 3, CPU)
    logits = torch.tensor([[9.0, 0, 0], [0, 2, 0], [0, 2, 0], [0, 0, 9], [0, 0, 9]])
    scores.add(logits, torch.tensor([0, 0, 0, 1, 2]), torch.tensor([0, 0, 0, 2, 1]))
    found = scores.reduce(Processes())
    assert found.confusion == ((0, 1, 1), (1, 2, 1), (2, 2, 1))
    assert found.top1 == pytest.approx(100 / 3)


def test_views_of_one_video_may_be_in_two_processes(monkeypatch):
    """Its label is not their sum."""
    parts = [Scores(1, 3, CPU) for _ in range(2)]
    for part in parts:
        part.add(torch.tensor([[0.0, 9.0, 0.0]]), torch.tensor([0]), torch.tensor([1]))
    from mgexp import dist

    other = {
        id(a): b for a, b in zip(vars(parts[0]).values(), vars(parts[1]).values(), strict=True)
    }
    monkeypatch.setattr(dist, "sum_", lambda _, values: values.add_(other[id(values)]))
    monkeypatch.setattr(
        dist, "max_", lambda _, values: values.copy_(values.maximum(other[id(values)]))
    )
    found = parts[0].reduce(Processes(0, 2))
    assert (found.top1, found.loss) == (
        100.0,
        pytest.approx(2 * torch.tensor(-9.0).exp().item(), 1e-2),
    )


def test_every_broken_video_is_named_once():
    broken = ((0, "a.mp4: is broken"),)
    more = ((0, "a.mp4: is broken"), (1, "b.mp4: is empty"))
    batches = [views([[1, 0, 0]], [2], [0], broken), views([[1, 0, 0]], [3], [0], more)]
    with pytest.raises(InputError, match="2 validation videos") as caught:
        evaluate(FirstPixels(), batches, 4, 3, IDENTITY, Processes())
    assert "a.mp4: is broken, b.mp4: is empty" in str(caught.value)


def test_evaluation_is_in_eval_mode_and_leaves_no_gradients():
    seen = []

    class Spy(FirstPixels):
        def forward(self, clips):
            seen.append((self.training, torch.is_grad_enabled()))
            return super().forward(clips)

    evaluate(Spy().train(), [views([[1, 0, 0]], [0], [0])], 1, 3, IDENTITY, Processes())
    assert seen == [(False, False)]
