"""Videos of many labels through run_net.py: from the official CSV to results.csv, killed evaluations included."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from run_files import read_lines, refused, torchrun
from tiny import NUM_TRAIN, NUM_VAL, command, write_config

from mgexp.results.collect import append_results
from mgexp.run.folder import RunDir, find_runs
from mgexp.train import evaluate

NUM_CLASSES = 3
SHORT = {"SOLVER.STEPS": [0, 0.5], "SOLVER.MAX_EPOCH": 1, "TRAIN.NUM_EVALUATIONS": 2}
CHARADES = {
    "DATA.FORMAT": "charades",
    "MODEL.NUM_CLASSES": NUM_CLASSES,
    "MODEL.LOSS_FUNC": "bce_logit",
    "DATA.ENSEMBLE_METHOD": "max",
    "TEST.BATCH_SIZE": 4,
}


def actions_of(index):
    """Class 0 or 1 by the video's motion, class 2 in the first half of every third; nothing in the sixth."""
    moves = f"c{index % 2:03d} 0.00 0.80"
    also = ["c002 0.00 0.40"] if index % 3 == 0 else []
    return "" if index == 5 else ";".join([moves, *also])


def labels_of(index):
    return [float(f"c{label:03d}" in actions_of(index)) for label in range(NUM_CLASSES)]


def write_charades(tiny_data, folder):
    """The YAML of the tiny row on the tiny videos, listed as Charades lists its own."""
    keys = {"DATA.PATH_PREFIX": str(tiny_data)}
    for split, num in (("train", NUM_TRAIN), ("val", NUM_VAL)):
        rows = [f"{split}{index},{actions_of(index)},0.8" for index in range(num)]
        path = folder / f"Charades_v1_{split}.csv"
        path.write_text("\r\n".join(["id,actions,length", *rows]), encoding="utf-8-sig")
        keys[f"DATA.{split.upper()}_LIST"] = str(path)
    (folder / "experiments").mkdir()
    return write_config(folder / "experiments" / "tiny.yaml", {**CHARADES, **SHORT, **keys})


@pytest.fixture
def charades_cfg(tiny_data, tmp_path):
    return write_charades(tiny_data, tmp_path)


@pytest.fixture(scope="module")
def finished(tiny_data, main, tmp_path_factory):
    """YAML and folder of a finished run; read only."""
    folder = tmp_path_factory.mktemp("finished")
    cfg = write_charades(tiny_data, folder)
    assert main(command(cfg, folder / "run")) == 0
    return cfg, folder / "run"


def scores_of(folder):
    with np.load(folder / "scores_2x1_forward.npz") as file:
        return dict(file)


def test_a_run_of_many_labels_ends_with_its_map(finished, tmp_path):
    cfg, output = finished
    result = json.loads((output / "result.json").read_text())
    assert result["metrics"].keys() == {"map"}
    lines = read_lines(output / "evaluations.jsonl")
    assert all("top1" not in line and 0 < line["map"] <= 100 for line in lines)
    assert lines[-1]["map"] == result["metrics"]["map"]
    assert "mAP" in (output / "log.txt").read_text()
    found = scores_of(output)
    assert [Path(path).stem for path in found["videos"]] == [f"val{i}" for i in range(NUM_VAL)]
    assert found["labels"].tolist() == [labels_of(index) for index in range(NUM_VAL)]
    assert found["scores"].shape == (NUM_VAL, NUM_CLASSES)
    assert ((found["scores"] > 0) & (found["scores"] < 1)).all()
    assert found["num_views"] == 2
    append_results(find_runs(output.parent), tmp_path / "results.csv", cfg.parent)
    (row,) = csv.DictReader((tmp_path / "results.csv").open())
    assert (row["top1"], float(row["map"])) == ("", pytest.approx(lines[-1]["map"], abs=1e-4))


def test_a_map_is_judged(charades_cfg, output, main):
    assert main(command(charades_cfg, output, "EXPECTED", "[['map', 0.5, 0.001]]")) == 3


def test_the_first_loss_is_that_of_chance(finished):
    """Logits start near 0: the binary cross-entropy of each class is log 2."""
    first = read_lines(finished[1] / "metrics.jsonl")[0]["loss"]
    assert first == pytest.approx(np.log(2), abs=0.05)


def test_bad_actions_are_refused(charades_cfg, output, main, capsys, tmp_path):
    with (tmp_path / "Charades_v1_train.csv").open("a") as file:
        file.write("\r\nlost,c003 0.0 1.0,1\r\n")
    message = refused(main, capsys, command(charades_cfg, output))
    for words in ("action outside the classes", "Charades_v1_train.csv:26", "lost.mp4", "1 of 25"):
        assert words in message
    assert not output.exists()


class Killed(BaseException):
    """Stands in for a kill: nothing catches it."""


@pytest.fixture(scope="module")
def killed_run(finished, main, tmp_path_factory):
    """The folder of a run whose final evaluation was killed after three of its four batches; read only."""
    original, folder = evaluate.PartialScores.count_batch, tmp_path_factory.mktemp("killed") / "run"

    def counted(self, scores):
        self.save_seconds = 0.0  # so that it saves each batch
        original(self, scores)
        if self.path is not None and self.num_batches == 3:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate.PartialScores, "count_batch", counted)
        with pytest.raises(Killed):
            main(command(finished[0], folder))
    return folder


@pytest.fixture
def killed(killed_run, output):
    """A copy of it, to go on with."""
    return Path(shutil.copytree(killed_run, output))


def spy_on_precise_bn(monkeypatch):
    """Calls of precise batch norm, and numbers of views scored."""
    seen = {"precise_bn": 0, "views": 0}
    precise, add = evaluate.with_precise_bn, evaluate.Scores.add

    def counted_precise(*arguments):
        seen["precise_bn"] += 1
        return precise(*arguments)

    def counted_add(self, logits, videos, labels):
        seen["views"] += len(videos)
        add(self, logits, videos, labels)

    monkeypatch.setattr(evaluate, "with_precise_bn", counted_precise)
    monkeypatch.setattr(evaluate.Scores, "add", counted_add)
    return seen


def test_a_final_evaluation_that_was_killed_goes_on(finished, killed, main, monkeypatch):
    cfg, whole = finished
    (part,) = (killed / "evaluation_parts").iterdir()
    assert torch.load(part, weights_only=True)["num_batches"] == 3  # of 4: 16 views, 4 at a time
    seen = spy_on_precise_bn(monkeypatch)
    assert main(command(cfg, killed)) == 0
    assert seen == {"precise_bn": 0, "views": 4}
    for name, values in scores_of(whole).items():
        assert (scores_of(killed)[name] == values).all(), name
    assert (
        read_lines(killed / "evaluations.jsonl")[-1]["map"]
        == (read_lines(whole / "evaluations.jsonl")[-1]["map"])
    )
    assert not (killed / "evaluation_parts").exists()
    assert not (whole / "evaluation_parts").exists()


def test_a_part_of_another_configuration_is_forgotten(finished, killed, main, monkeypatch):
    seen = spy_on_precise_bn(monkeypatch)
    changed = command(finished[0], killed, "DATA.TARGET_FPS", 15)
    assert main([*changed, "--override"]) == 0
    assert seen["views"] == 2 * NUM_VAL
    assert seen["precise_bn"] == 1


def test_a_part_of_a_run_that_trains_on_is_forgotten(finished, killed, main, monkeypatch):
    run = RunDir(killed)
    run.checkpoint(run.checkpoint_steps()[-1]).unlink()
    seen = spy_on_precise_bn(monkeypatch)
    assert main(command(finished[0], killed)) == 0
    assert seen["views"] >= 2 * NUM_VAL


def test_a_control_keeps_the_scores_of_the_plain_videos(finished, output, main):
    cfg, run = finished
    shutil.copytree(run, output)
    before = (output / "scores_2x1_forward.npz").read_bytes()
    pairs = ("TRAIN.ENABLE", False, "TEST.FRAME_ORDER", "repeated")
    assert main(command(cfg, output, *pairs)) == 0
    assert (output / "scores_2x1_forward.npz").read_bytes() == before
    assert (output / "scores_2x1_repeated.npz").exists()
    assert not (output / "evaluation_parts").exists()


@pytest.mark.slow
def test_two_processes_score_as_one_does(charades_cfg, output, main, tmp_path):
    """At a learning rate at which the rounding of a step is not blown up by the steps after it."""
    pairs = ("SOLVER.BASE_LR", 1e-5)
    assert main(command(charades_cfg, output, *pairs)) == 0
    torchrun(command(charades_cfg, tmp_path / "two", *pairs))
    one, two = scores_of(output), scores_of(tmp_path / "two")
    assert (one["labels"] == two["labels"]).all()
    np.testing.assert_allclose(two["scores"], one["scores"], atol=1e-3)
    assert not (tmp_path / "two" / "evaluation_parts").exists()
