"""Predictions: probabilities computed by hand, views of one video in two batches, and videos that fail."""

import pytest
import torch
from view_batches import FirstPixels, Views

from mgexp.run.folder import RunDir
from mgexp.train.predict import Prediction, Predictor, read_names
from mgexp.train.step import Normalizer
from mgexp.train.task import many_labels, one_label


def views(rows, videos, errors=()):
    clips = torch.tensor(rows, dtype=torch.uint8).view(len(rows), 1, 1, 1, 3)
    return Views(clips, torch.tensor(videos, dtype=torch.long), errors=errors)


@pytest.fixture
def predict():
    normalizer = Normalizer((0.0,), (1 / 255,), torch.device("cpu"))
    return Predictor(FirstPixels(), normalizer, one_label(3, "sum")).predict


def test_of_many_labels_a_probability_is_the_best_sigmoid_of_the_views():
    normalizer = Normalizer((0.0,), (1 / 255,), torch.device("cpu"))
    predict = Predictor(FirstPixels(), normalizer, many_labels(3, "max")).predict
    (found,) = predict(("a",), [views([[2, 0, 0], [0, 1, 0]], [0, 0])], num_best=2)
    best = torch.tensor([2.0, 1.0]).sigmoid().tolist()
    assert found.classes == ((0, pytest.approx(best[0])), (1, pytest.approx(best[1])))


def test_a_probability_is_the_mean_of_the_softmax_over_the_views(predict):
    (found,) = predict(("a",), [views([[2, 0, 0], [0, 1, 0]], [0, 0])], num_best=2)
    softmax = torch.tensor([[2.0, 0, 0], [0, 1, 0]]).softmax(1).mean(0).tolist()
    assert [label for label, _ in found.classes] == [0, 1]
    assert [share for _, share in found.classes] == pytest.approx(softmax[:2])
    assert found.error is None


def test_views_of_a_video_may_be_in_several_batches(predict):
    batches = [views([[9, 0, 0], [0, 9, 0]], [0, 1]), views([[0, 9, 0], [0, 0, 9]], [1, 2])]
    found = list(predict(("a", "b", "c"), batches, num_best=1))
    assert [(one.path, one.classes[0][0]) for one in found] == [("a", 0), ("b", 1), ("c", 2)]
    assert found[1].classes[0][1] == pytest.approx(1, abs=1e-3)


def test_a_video_is_given_as_soon_as_a_later_one_came(predict):
    def batches():
        yield views([[9, 0, 0], [0, 9, 0]], [0, 1])
        raise AssertionError("the second batch is not needed for the first video")

    assert next(predict(("a", "b"), batches(), num_best=1)).path == "a"


def test_a_video_that_fails_in_one_view_has_an_error_and_the_others_go_on(predict):
    batches = [
        views([[9, 0, 0]], [0], errors=((1, "b: is broken"),)),
        views([[9, 0, 0], [0, 9, 0]], [1, 2]),
    ]
    found = list(predict(("a", "b", "c"), batches, num_best=1))
    assert found[1] == Prediction("b", error="b: is broken")
    assert [one.classes[0][0] for one in (found[0], found[2])] == [0, 1]


def test_nothing_but_failures(predict):
    batches = [views([], [], errors=((0, "a: is broken"), (1, "b: is broken")))]
    assert [one.error for one in predict(("a", "b"), batches, 1)] == [
        "a: is broken",
        "b: is broken",
    ]


def test_names_of_a_run_may_begin_with_numbers(tmp_path):
    run_dir = RunDir(tmp_path)
    assert read_names(None, run_dir, 2) == ()
    run_dir.classes_txt.write_text("1 step\n2 steps\n")
    assert read_names(None, run_dir, 2) == ("1 step", "2 steps")
    # Those that a user gives may be numbered, as in DATA.CLASSES.
    assert read_names(run_dir.classes_txt, run_dir, 2) == ("step", "steps")
