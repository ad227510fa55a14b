"""Videos of many labels through run_net.py: from the official CSV to results.csv, killed evaluations included."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from run_files import read_lines, torchrun
from tiny import NUM_TRAIN, NUM_VAL, command, load_tool, write_config

from mgexp.results.store import read_stored, store_runs
from mgexp.run.folder import find_runs
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


def test_predict_scores_a_list_of_many_labels_as_the_run_does(finished, tmp_path, capsys):
    cfg, output = finished
    listed, table = cfg.parents[1] / "Charades_v1_val.csv", tmp_path / "out.csv"
    arguments = ["--list", listed, "--run", output, "--csv", table]
    assert load_tool("predict").main([*map(str, arguments), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    last = read_lines(output / "evaluations.jsonl")[-1]
    assert found["metrics"] == {"map": pytest.approx(last["map"], abs=1e-6)}
    assert "classes" not in found
    truths = [line["truth"] for line in csv.DictReader(table.open())]
    assert truths[:6] == ["0 2", "1", "0", "1 2", "0", ""]
    assert load_tool("predict").main([*map(str, arguments)]) == 0
    assert capsys.readouterr().out == f"{NUM_VAL} videos: mAP {last['map']:.2f} %\n"
    pairs = ["MODEL.LOSS_FUNC", "cross_entropy"]
    assert load_tool("predict").main([*map(str, arguments), *pairs]) == 2


def test_a_run_of_many_labels_ends_with_its_map(finished, tmp_path):
    cfg, output = finished
    result = json.loads((output / "result.json").read_text())
    assert result["metrics"].keys() == {"map"}
    lines = read_lines(output / "evaluations.jsonl")
    assert all("top1" not in line and 0 < line["map"] <= 100 for line in lines)
    assert lines[-1]["map"] == result["metrics"]["map"]
    # Logits start near 0: the binary cross-entropy of each class is log 2.
    first = read_lines(output / "metrics.jsonl")[0]["loss"]
    assert first == pytest.approx(np.log(2), abs=0.05)
    found = scores_of(output)
    assert [Path(path).stem for path in found["videos"]] == [f"val{i}" for i in range(NUM_VAL)]
    names = [f"c{label:03d}" for label in range(NUM_CLASSES)]
    videos = (actions_of(index) for index in range(NUM_VAL))
    assert found["labels"].tolist() == [[name in video for name in names] for video in videos]
    assert found["scores"].shape == (NUM_VAL, NUM_CLASSES)
    assert ((found["scores"] > 0) & (found["scores"] < 1)).all()
    assert found["num_views"] == 2
    store_runs(find_runs(output.parent), cfg.parent)
    (row,) = read_stored(cfg.parent / "runs.jsonl").rows
    assert (row.first.top1, row.first.map) == (None, pytest.approx(lines[-1]["map"], abs=1e-4))


class Killed(BaseException):
    """Stands in for a kill: nothing catches it."""


def test_a_final_evaluation_that_was_killed_gives_the_same_scores(finished, output, main):
    cfg, whole = finished
    add, num_views = evaluate.Scores.add, 0

    def killed_add(self, logits, videos, labels):
        nonlocal num_views
        num_views += len(videos)
        if num_views > NUM_VAL:
            raise Killed
        add(self, logits, videos, labels)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(evaluate.Scores, "add", killed_add)
        main(command(cfg, output))
    assert main(command(cfg, output)) == 0
    for name, values in scores_of(whole).items():
        assert (scores_of(output)[name] == values).all(), name
    last = [read_lines(run / "evaluations.jsonl")[-1]["map"] for run in (output, whole)]
    assert last[0] == last[1]


@pytest.mark.slow
def test_two_processes_score_as_one_does(tiny_data, output, main, tmp_path):
    """At a learning rate at which the rounding of a step is not blown up by the steps after it."""
    charades_cfg, pairs = write_charades(tiny_data, tmp_path), ("SOLVER.BASE_LR", 1e-5)
    assert main(command(charades_cfg, output, *pairs)) == 0
    torchrun(command(charades_cfg, tmp_path / "two", *pairs))
    one, two = scores_of(output), scores_of(tmp_path / "two")
    assert (one["labels"] == two["labels"]).all()
    np.testing.assert_allclose(two["scores"], one["scores"], atol=1e-3)
