"""tools/run_net.py from the command line to the run folder, on small real videos."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from run_files import losses, read_lines, refused
from tiny import NUM_TRAIN, NUM_VAL, command, data_keys, write_config

from mgexp.run.environment import num_cores

NUM_STEPS = 10  # of the tiny row; by hand: (2, 2, 2, 2) of the long cycle and 2 of fine-tuning
RESULT_KEYS = {
    *("experiment", "row", "seed", "commit", "date", "num_train_videos", "num_unusable_videos"),
    *("other_cores", "steps", "epochs", "clips_seen", "train_flops", "params"),
    *("metrics", "seconds", "device", "precision", "expected", "verdict"),
}
SECONDS_KEYS = {
    *("train", "steady", "input_wait", "evaluate", "precise_bn", "checkpoint"),
    *("shape_warmup", "program"),
}
METRICS_KEYS = {
    *("step", "epoch", "phase", "frames", "crop", "clips", "lr", "loss", "step_seconds"),
    *("input_wait_seconds", "clips_per_second", "max_memory_bytes"),
}
EVALUATION_KEYS = {"step", "epoch", "train_seconds", "top1", "top5", "loss", "views"}


def test_a_run_leaves_the_result_of_the_contract(finished_run):
    """Its seconds contain each other."""
    result = json.loads((finished_run / "result.json").read_text())
    assert result.keys() == RESULT_KEYS
    assert result["seconds"].keys() == SECONDS_KEYS
    assert result["metrics"].keys() == {"top1", "top5"}
    found = (result["row"], result["steps"], result["num_train_videos"])
    assert found == ("long+short", NUM_STEPS, NUM_TRAIN)
    assert result["metrics"]["top5"] == 100  # of two classes
    assert result["other_cores"] >= 0
    seconds = result["seconds"]
    assert seconds["steady"] == pytest.approx(seconds["train"] - seconds["shape_warmup"])
    assert 0 < seconds["input_wait"] < seconds["train"]
    parts = ("train", "evaluate", "precise_bn", "checkpoint")
    assert 0 < sum(seconds[name] for name in parts) <= seconds["program"]


def test_a_run_records_every_step_evaluation_and_score(finished_run):
    steps = read_lines(finished_run / "metrics.jsonl")
    assert [line["step"] for line in steps] == list(range(NUM_STEPS))
    assert all(line.keys() == METRICS_KEYS for line in steps)
    evaluations = read_lines(finished_run / "evaluations.jsonl")
    assert all(line.keys() >= EVALUATION_KEYS for line in evaluations)
    assert [line["views"] for line in evaluations] == [1, 2]
    assert evaluations[-1]["step"] == NUM_STEPS
    with np.load(finished_run / "scores_2x1_forward.npz") as file:
        is_right = file["scores"].argmax(1) == file["labels"]
    assert len(is_right) == NUM_VAL
    assert 100 * is_right.mean() == pytest.approx(evaluations[-1]["top1"])


def test_a_run_takes_the_clips_and_shapes_of_its_schedule(finished_run):
    steps = read_lines(finished_run / "metrics.jsonl")
    shapes = [(line["clips"], line["frames"], line["crop"]) for line in steps]
    # B = 4, T = 8, S = 32: (T/4, S/√2) (T/2, S/√2) (T/2, S) (T, S), crops S/2 first, then S/√2
    assert shapes[:4] == [(64, 2, 16), (32, 2, 23), (32, 4, 16), (16, 4, 23)]
    assert shapes[6:] == [(16, 8, 16), (8, 8, 23), (16, 8, 16), (16, 8, 16)]


def test_a_finished_run_stays_as_it_is(finished_run, cfg, tmp_path, main):
    folder = Path(shutil.copytree(finished_run, tmp_path / "run"))
    before = (folder / "result.json").read_bytes()
    assert main(command(cfg, folder)) == 0
    assert (folder / "result.json").read_bytes() == before


def test_an_evaluation_of_a_finished_run_appends_a_line(finished_run, cfg, tmp_path, main):
    folder = Path(shutil.copytree(finished_run, tmp_path / "run"))
    names = ("result.json", "model.pt", "scores_2x1_forward.npz")
    kept = {name: (folder / name).read_bytes() for name in names}
    before = read_lines(folder / "evaluations.jsonl")
    pairs = ("TRAIN.ENABLE", False, "TEST.FRAME_ORDER", "repeated", "DEVICE", "auto")
    assert main(command(cfg, folder, *pairs)) == 0
    after = read_lines(folder / "evaluations.jsonl")
    assert after[:-1] == before
    assert after[-1]["frame_order"] == "repeated"
    assert (after[-1]["step"], after[-1]["num_videos"]) == (NUM_STEPS, NUM_VAL)
    assert {name: (folder / name).read_bytes() for name in kept} == kept
    assert (folder / "scores_2x1_repeated.npz").exists()


def test_the_evaluation_of_a_finished_run_gives_its_accuracy(finished_run, cfg, tmp_path, main):
    folder = Path(shutil.copytree(finished_run, tmp_path / "run"))
    assert main(command(cfg, folder, "TRAIN.ENABLE", False)) == 0
    *_, trained, evaluated = read_lines(folder / "evaluations.jsonl")
    for name in ("top1", "top5", "loss", "step", "epoch", "views"):
        assert evaluated[name] == pytest.approx(trained[name]), name


@pytest.mark.parametrize(
    ("name", "is_gone"), [("model.pt", True), ("result.json", True), ("model.pt", False)]
)
def test_an_evaluation_needs_a_run_that_is_complete(
    name, is_gone, finished_run, cfg, tmp_path, main, capsys
):
    """A kill during the final evaluation leaves no result, and the file of an own model may have changed."""
    folder = Path(shutil.copytree(finished_run, tmp_path / "run"))
    (folder / name).unlink()
    if not is_gone:
        torch.save({"other": torch.zeros(1)}, folder / name)
    assert name in refused(main, capsys, command(cfg, folder, "TRAIN.ENABLE", False))


def test_a_missed_expectation_is_exit_code_3(tiny_data, tmp_path, main):
    """Of 8 videos, no accuracy is within 1 % of 6 %."""
    changes = {**data_keys(tiny_data), "EXPECTED": [["top1", 6.0, 1]]}
    short = {"SOLVER.STEPS": [0, 0.5], "SOLVER.MAX_EPOCH": 1, "TRAIN.NUM_EVALUATIONS": 1}
    cfg = write_config(tmp_path / "tiny.yaml", {**changes, **short})
    for _ in range(2):  # the complete run says the same
        assert main(command(cfg, tmp_path / "run")) == 3
    assert json.loads((tmp_path / "run" / "result.json").read_text())["verdict"] == "missed"


def test_a_run_chooses_its_workers_says_how_many_and_trains_to_the_same_bits(
    finished_run, cfg, output, main
):
    """The other run has no worker."""
    assert main(command(cfg, output, "DATA_LOADER.NUM_WORKERS", "auto")) == 0
    log = (output / "log.txt").read_text()
    assert 1 <= int(re.search(r"(\d+) loader worker", log)[1]) <= num_cores()
    assert losses(output) == losses(finished_run)
    assert "NUM_WORKERS: auto" in (output / "config.yaml").read_text()


def test_a_smoke_run_refuses_a_network_that_cannot_be_built(cfg, output, main, capsys):
    """With fewer channels it could be."""
    vit = ("MODEL.MODEL_NAME", "ViT", "VIT.TUBELET", "[2,1,1]", "VIT.NUM_HEADS", 7)
    message = refused(main, capsys, [*command(cfg, output, *vit), "--smoke"])
    assert "VIT.NUM_HEADS" in message


def test_a_seed_trains_its_fold(tiny_data, cfg, output, main):
    folder = output.parent
    for split in ("train", "val"):
        (folder / f"{split}_1.txt").write_text((tiny_data / f"{split}.txt").read_text())
    lists = ("DATA.TRAIN_LIST", folder / "train_{fold}.txt")
    lists += ("DATA.VAL_LIST", folder / "val_{fold}.txt")
    short = ("SOLVER.STEPS", "[0, 0.5]", "SOLVER.MAX_EPOCH", 1, "TRAIN.NUM_EVALUATIONS", 1)
    assert main([*command(cfg, output, *lists, "DATA.NUM_FOLDS", 3, *short), "--seed", "7"]) == 0
    assert f"{folder}/train_1.txt" in (output / "log.txt").read_text()
    # The file keeps the pattern, so that all seeds of a row have the same configuration.
    assert f"TRAIN_LIST: {folder}/train_{{fold}}.txt" in (output / "config.yaml").read_text()
