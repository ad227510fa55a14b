"""TRAIN.INIT_WEIGHTS: a run starts from a file, says so, needs it only once, and refuses what does not fit."""

import hashlib
import json

import torch
from run_files import assert_bit_identical, refused, stop_in
from served import served
from tiny import command, tiny_config

from mgexp.models.build import build_model
from mgexp.models.weights import write_weights

SHORT = ["SOLVER.STEPS", "[0, 0.5]", "SOLVER.MAX_EPOCH", 1, "TRAIN.NUM_EVALUATIONS", 1]
STILL = [*SHORT, "SOLVER.BASE_LR", 1e-30, "SOLVER.WARMUP_START_LR", 0, "SOLVER.WEIGHT_DECAY", 0]
"""Short training that leaves the weights where they start."""


def save_weights(tmp_path, changes=()):
    """Weights of another seed, for the tiny row but for ``changes``; the file and the tensors."""
    folder = tmp_path / "weights"
    folder.mkdir()
    model = build_model(tiny_config(folder, {"RNG_SEED": 7, **dict(changes)}))
    path = folder / "weights.pyth"
    write_weights(path, model.state_dict())
    return path, model.state_dict()


def test_a_run_starts_from_the_file_and_its_evaluation_does_not_need_it(
    cfg, output, main, tmp_path
):
    """The head of the file has other classes. Every tensor is listed in the run folder."""
    path, tensors = save_weights(tmp_path, {"MODEL.NUM_CLASSES": 9})
    arguments = command(cfg, output, "TRAIN.INIT_WEIGHTS", path, *STILL)
    assert main(arguments) == 0
    found = torch.load(output / "model.pt", weights_only=True)
    record = json.loads((output / "init_weights.json").read_text())
    assert record["left"] == ["blocks.6.proj.weight", "blocks.6.proj.bias"]
    assert record["naming"] == "pytorchvideo"
    assert {*record["used"], *record["left"], *record["missing"]} == {*found}
    trained = [name for name in record["used"] if found[name].dim() and "running" not in name]
    assert all(torch.allclose(found[name], tensors[name], atol=1e-20) for name in trained)
    path.unlink()
    assert main([*arguments, "TRAIN.ENABLE", "False"]) == 0


def test_the_file_is_needed_only_until_the_first_checkpoint(cfg, output, main, tmp_path):
    path, _ = save_weights(tmp_path)
    arguments = ("TRAIN.INIT_WEIGHTS", path, *SHORT)
    whole = tmp_path / "whole"
    assert main(command(cfg, whole, *arguments)) == 0
    stop_in(1, main, command(cfg, output, *arguments))
    path.unlink()
    assert main(command(cfg, output, *arguments)) == 0
    assert_bit_identical(output, whole)


def test_a_smoke_run_looks_at_the_weights_of_the_whole_row(cfg, output, main, capsys, tmp_path):
    path, _ = save_weights(tmp_path)
    pairs = ("--smoke", "TRAIN.INIT_WEIGHTS", path)
    assert main(command(cfg, output, *pairs)) == 0
    assert not (output / "init_weights.json").exists()
    path.write_bytes(path.read_bytes()[:-5000])
    assert f"{path}: " in refused(main, capsys, command(cfg, tmp_path / "other", *pairs))


def test_a_run_starts_from_weights_of_a_web_server(
    main, cfg, output, finished_run, tmp_path, monkeypatch, own_code
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    digest = hashlib.sha256((finished_run / "model.pt").read_bytes()).hexdigest()
    with served(finished_run) as (address, _):
        for checked in ("", f"#sha256={digest}"):
            weights = ("TRAIN.INIT_WEIGHTS", f"{address}/model.pt{checked}")
            assert main(command(cfg, output / checked, *weights, *SHORT)) == 0
            found = json.loads((output / checked / "init_weights.json").read_text())
            assert found["sha256"] == digest
            assert found["left"] == []
            log = (output / checked / "log.txt").read_text()
            assert ("no checksum" in log) == (not checked)
