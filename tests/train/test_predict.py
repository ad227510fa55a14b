"""Predictions: probabilities and features computed by hand, views in two batches, and videos that fail."""

import pytest
import torch
from tiny import tiny_config
from view_batches import FirstPixels, Views, views

from mgexp.data.records import VideoRecord
from mgexp.errors import InputError
from mgexp.models.build import build_model
from mgexp.run.folder import RunDir
from mgexp.train.predict import Prediction, Predictor, build_classifier, read_names
from mgexp.train.step import Normalizer
from mgexp.train.task import many_labels, one_label


def records(*paths):
    return tuple(VideoRecord(path, 0) for path in paths)


IDENTITY = Normalizer((0.0,), (1 / 255,), torch.device("cpu"))


@pytest.fixture
def predict():
    return Predictor(FirstPixels(), IDENTITY, one_label(3, "sum")).predict


def test_of_many_labels_a_probability_is_the_best_sigmoid_of_the_views():
    predict = Predictor(FirstPixels(), IDENTITY, many_labels(3, "max")).predict
    (found,) = predict(records("a"), [views([[2, 0, 0], [0, 1, 0]], [0, 0])])
    best = torch.tensor([2.0, 1.0]).sigmoid().tolist()
    assert found.best(2) == ((0, pytest.approx(best[0])), (1, pytest.approx(best[1])))


def test_a_probability_is_the_mean_of_the_softmax_over_the_views(predict):
    (found,) = predict(records("a"), [views([[2, 0, 0], [0, 1, 0]], [0, 0])])
    softmax = torch.tensor([[2.0, 0, 0], [0, 1, 0]]).softmax(1).mean(0).tolist()
    assert [label for label, _ in found.best(2)] == [0, 1]
    assert [share for _, share in found.best(2)] == pytest.approx(softmax[:2])
    assert found.error is None


def test_views_of_a_video_may_be_in_several_batches(predict):
    batches = [views([[9, 0, 0], [0, 9, 0]], [0, 1]), views([[0, 9, 0], [0, 0, 9]], [1, 2])]
    found = list(predict(records("a", "b", "c"), batches))
    best = [(one.record.path, one.best(1)[0][0]) for one in found]
    assert best == [("a", 0), ("b", 1), ("c", 2)]
    assert found[1].best(1)[0][1] == pytest.approx(1, abs=1e-3)


def test_a_video_is_given_as_soon_as_a_later_one_came(predict):
    def batches():
        yield views([[9, 0, 0], [0, 9, 0]], [0, 1])
        raise AssertionError("the second batch is not needed for the first video")

    assert next(predict(records("a", "b"), batches())).record.path == "a"


def test_a_video_that_fails_in_one_view_has_an_error_and_the_others_go_on(predict):
    batches = [
        views([[9, 0, 0]], [0], errors=((1, "b: is broken"),)),
        views([[9, 0, 0], [0, 9, 0]], [1, 2]),
    ]
    found = list(predict(records("a", "b", "c"), batches))
    assert found[1] == Prediction(VideoRecord("b", 0), error="b: is broken")
    assert found[1].best(1) == ()
    assert [one.best(1)[0][0] for one in (found[0], found[2])] == [0, 1]


def test_nothing_but_failures(predict):
    batches = [views([], [], errors=((0, "a: is broken"), (1, "b: is broken")))]
    assert [one.error for one in predict(records("a", "b"), batches)] == [
        "a: is broken",
        "b: is broken",
    ]


def test_names_of_a_run_may_begin_with_numbers(tmp_path):
    run_dir = RunDir(tmp_path)
    assert read_names(None, run_dir, 2) == ()
    run_dir.classes_txt.write_text("1 step\n3 steps\n")
    assert read_names(None, run_dir, 2) == ("1 step", "3 steps")
    # Those that a user gives are numbered, as in DATA.CLASSES.
    with pytest.raises(InputError, match=r"numbers \[1, 3\] have a gap"):
        read_names(run_dir.classes_txt, run_dir, 2)


NETWORKS = {
    "SlowFast": {},
    "I3D": {"RESNET.DEPTH": 50},
    "TSM": {"RESNET.DEPTH": 50},
    "X3D": {"X3D.WIDTH_FACTOR": 0.25},
    "ViT": {"VIT.EMBED_DIM": 24, "VIT.DEPTH": 1, "VIT.NUM_HEADS": 2, "VIT.TUBELET": [2, 16, 16]},
    "MViT": {"MVIT.EMBED_DIM": 12},
}


@pytest.mark.parametrize("network", NETWORKS)
def test_features_are_the_mean_of_what_the_classifier_gets(network, tmp_path):
    """The classifier, applied to them by hand, gives the mean of the logits of the views."""
    cfg = tiny_config(tmp_path, {"MODEL.MODEL_NAME": network, **NETWORKS[network]})
    model = build_model(cfg).eval()
    layer = build_classifier(cfg, model)
    # A classifier starts near 0, and would give logits that are all alike.
    torch.nn.init.normal_(layer.weight)
    clips = torch.randint(256, (3, 3, 8, 32, 32), dtype=torch.uint8)
    normalizer = Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, torch.device("cpu"))
    predictor = Predictor(model, normalizer, one_label(2, "sum"), layer)
    batches = [Views(clips[:2], torch.tensor([0, 0])), Views(clips[2:], torch.tensor([1]))]
    with torch.inference_mode():
        logits = torch.cat([model(normalizer(clips[:2])), model(normalizer(clips[2:]))])
        features = torch.stack(
            [one.features for one in predictor.predict(records("a", "b"), batches)]
        )
        found = layer(features)
    assert features.shape == (2, layer.in_features)
    wanted = torch.stack([logits[:2].mean(0), logits[2]])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_network_without_a_known_classifier_has_no_features(tmp_path):
    with pytest.raises(InputError, match=r"no nn\.Linear called head"):
        build_classifier(tiny_config(tmp_path), torch.nn.Sequential(torch.nn.Linear(4, 2)))
