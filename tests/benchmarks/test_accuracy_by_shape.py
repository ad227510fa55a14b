"""What a network sees at each shape: the tiny run against a plain evaluation."""

import json

import accuracy_by_shape
import pytest
import torch
from accuracy_by_shape import build_evaluation, share_kept
from tiny import data_keys, tiny_config, write_config

from mgexp.data.loader import build_view_loader
from mgexp.dist import Processes
from mgexp.run.folder import RunDir
from mgexp.train.evaluate import Evaluation
from mgexp.train.predict import build_predictor
from mgexp.train.setup import build_inputs

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def run(tiny_data, finished_run, tmp_path_factory):
    """The configuration, the inputs and the model of a finished run."""
    cfg = tiny_config(tmp_path_factory.mktemp("row"), data_keys(tiny_data))
    return cfg, build_inputs(cfg, [], 1), build_predictor(cfg, RunDir(finished_run), CPU)


def test_at_the_full_shape_the_scores_are_those_of_the_finished_model(run):
    """Its statistics were computed from the same clips."""
    cfg, inputs, predictor = run
    views = build_view_loader(cfg, inputs.val, False, CPU, Processes(), inputs.opener)
    with torch.inference_mode():
        logits = [predictor.model(predictor.normalizer(batch.clips)) for batch in views]
    found = build_evaluation(cfg, inputs, predictor, (8, 32))
    torch.testing.assert_close(found.scores, torch.cat(logits).softmax(1), rtol=1e-4, atol=1e-5)


def test_the_tool_writes_a_line_for_every_shape(
    tiny_data, finished_run, tmp_path, monkeypatch, capsys
):
    """90 % at the full shape, 60 % at all others; two classes of 4 videos each, so chance is 50 %."""

    def evaluation(_cfg, _inputs, _predictor, size):
        metrics = {"top1": 90.0 if size == (8, 32) else 60.0, "top5": 100.0}
        return Evaluation(metrics, 0.5, torch.zeros(8, 2), torch.tensor([0, 1] * 4))

    monkeypatch.setattr(accuracy_by_shape, "build_evaluation", evaluation)
    row = write_config(tmp_path / "tiny.yaml", data_keys(tiny_data))
    assert accuracy_by_shape.main(["--cfg", str(row), "--run", str(finished_run), "--json"]) == 0
    first, *others = json.loads(capsys.readouterr().out)
    assert first == {"frames": 8, "crop": 32, "accuracy": 90.0, "kept": 1.0}
    assert len(others) == 7 and {one["kept"] for one in others} == {0.25}


def test_the_share_kept_is_that_above_chance():
    assert share_kept(40.0, best=90.0, chance=10.0) == pytest.approx(30 / 80)
    assert share_kept(5.0, best=90.0, chance=10.0) == 0.0
    assert share_kept(50.0, best=10.0, chance=10.0) == 0.0
