"""Loss, scores and metrics, compared with their definitions and with scikit-learn if it is installed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mgexp.errors import InputError
from mgexp.train.task import (
    average_precision,
    many_labels,
    mean_average_precision,
    metric_problems,
    metrics_text,
    one_label,
    top1_and_top5,
)


def by_definition(scores, labels):
    """Compute average precision from its definition: at each distinct score, take all videos not below it."""
    total, recall = 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        taken = scores >= threshold
        hits = float(labels[taken].sum())
        new_recall = hits / float(labels.sum())
        total += (new_recall - recall) * hits / float(taken.sum())
        recall = new_recall
    return total


def cases():
    """Yield scores and labels (videos, classes) with and without ties, for rare and frequent classes."""
    rng = np.random.default_rng(0)
    for num_videos, num_levels, share in [
        (50, 10**6, 0.3),
        (50, 4, 0.3),
        (400, 20, 0.02),
        (1, 5, 1),
    ]:
        scores = rng.integers(0, num_levels, (num_videos, 6)) / np.float32(num_levels)
        labels = (rng.random((num_videos, 6)) < share).astype(np.float32)
        labels[0] = 1
        yield scores.astype(np.float32), labels


@pytest.mark.parametrize(("scores", "labels"), list(cases()))
def test_average_precision_is_its_definition(scores, labels):
    for score, label in zip(scores.T, labels.T, strict=True):
        found = average_precision(torch.tensor(score), torch.tensor(label))
        assert found.item() == pytest.approx(by_definition(score, label), rel=1e-12)


@pytest.mark.parametrize(("scores", "labels"), list(cases()))
def test_map_is_that_of_scikit_learn(scores, labels):
    metrics = pytest.importorskip("sklearn.metrics")
    found = mean_average_precision(torch.tensor(scores), torch.tensor(labels))
    assert found["map"] == pytest.approx(
        100 * metrics.average_precision_score(labels, scores), rel=1e-12
    )


def test_average_precision_by_hand():
    # Ranked: hit, miss, hit: (1/1 + 2/3) / 2. With all three at one score: 2/3.
    labels = torch.tensor([1.0, 0.0, 1.0])
    assert average_precision(torch.tensor([0.9, 0.5, 0.1]), labels).item() == pytest.approx(5 / 6)
    assert average_precision(torch.tensor([0.5, 0.5, 0.5]), labels).item() == pytest.approx(2 / 3)


def test_a_class_that_no_video_shows_is_left_out_and_a_video_without_labels_is_a_negative():
    scores = torch.tensor([[0.9, 0.1, 0.2], [0.1, 0.9, 0.3]])
    labels = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert mean_average_precision(scores, labels) == {"map": 100.0}
    scores = torch.tensor([[0.5], [0.9]])
    assert mean_average_precision(scores, torch.tensor([[1.0], [0.0]])) == {"map": 50.0}


def test_there_is_no_map_without_labels():
    with pytest.raises(InputError, match="none of 2 evaluated videos has a label"):
        mean_average_precision(torch.rand(2, 3), torch.zeros(2, 3))


def test_top1_and_top5_by_hand():
    scores = torch.tensor([[6.0, 5, 4, 3, 2, 1], [6.0, 5, 4, 3, 2, 1], [1.0, 2, 3, 4, 5, 6]])
    found = top1_and_top5(scores, torch.tensor([0, 5, 1]))
    assert found == {"top1": pytest.approx(100 / 3), "top5": pytest.approx(200 / 3)}


def test_a_run_is_judged_by_metrics_that_its_task_has():
    one, many = one_label(3, "sum"), many_labels(3, "sum")
    assert metric_problems(one, "cross_entropy", ["top1", "top5"]) == []
    assert metric_problems(many, "bce_logit", ["map"]) == []
    (problem,) = metric_problems(one, "cross_entropy", ["map", "top1"])
    assert problem.startswith("EXPECTED: MODEL.LOSS_FUNC = cross_entropy")
    other = replace(one, metrics=lambda scores, labels: {"accuracy": 50.0})
    (problem,) = metric_problems(other, "mine", [])
    assert problem.startswith("MODEL.LOSS_FUNC = mine is judged by accuracy")


@pytest.mark.parametrize(("num_classes", "has_top5"), [(2, False), (5, False), (6, True)])
def test_top5_of_five_classes_says_nothing(num_classes, has_top5):
    text = metrics_text({"top1": 91.25, "top5": 100}, num_classes)
    assert text == "top-1 91.25 %" + ", top-5 100.00 %" * has_top5
