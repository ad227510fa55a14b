"""TRAIN.INIT_WEIGHTS: a run starts from a file, says so, needs it only once, and refuses what does not fit."""

from __future__ import annotations

import json

import pytest
import torch
from run_files import assert_bit_identical, interrupt_in, refused
from tiny import command, data_keys, tiny_config, write_config

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


@pytest.fixture
def weights(tmp_path):
    return save_weights(tmp_path)


def test_a_run_starts_from_the_file_and_its_evaluation_does_not_need_it(weights, cfg, output, main):
    path, tensors = weights
    arguments = command(cfg, output, "TRAIN.INIT_WEIGHTS", path, *STILL)
    assert main(arguments) == 0
    found = torch.load(output / "model.pt", weights_only=True)
    trained = [name for name, value in tensors.items() if value.dim() and "running" not in name]
    assert all(torch.allclose(found[name], tensors[name], atol=1e-20) for name in trained)
    path.unlink()
    assert main([*arguments, "TRAIN.ENABLE", "False"]) == 0


def test_every_tensor_is_listed_in_the_run_folder(cfg, output, main, tmp_path):
    path, _ = save_weights(tmp_path, {"MODEL.NUM_CLASSES": 9})
    assert main(command(cfg, output, "TRAIN.INIT_WEIGHTS", path, *STILL)) == 0
    record = json.loads((output / "init_weights.json").read_text())
    assert record["left"] == ["blocks.6.proj.weight", "blocks.6.proj.bias"]
    assert record["naming"] == "pytorchvideo"
    assert "blocks.6.proj.weight" in (output / "log.txt").read_text()
    model = torch.load(output / "model.pt", weights_only=True)
    assert {*record["used"], *record["left"], *record["missing"]} == {*model}


def test_the_file_is_needed_only_until_the_first_checkpoint(
    weights, cfg, output, main, tmp_path, monkeypatch
):
    arguments = ("TRAIN.INIT_WEIGHTS", weights[0])
    whole = tmp_path / "whole"
    assert main(command(cfg, whole, *arguments)) == 0
    interrupt_in(2, monkeypatch)
    assert main(command(cfg, output, *arguments)) == 4
    monkeypatch.undo()
    weights[0].unlink()
    assert main(command(cfg, output, *arguments)) == 0
    assert_bit_identical(output, whole)


def test_weights_of_another_network_are_refused(cfg, output, main, capsys, tmp_path):
    path, _ = save_weights(tmp_path, {"RESNET.WIDTH_PER_GROUP": 16})
    message = refused(main, capsys, command(cfg, output, "TRAIN.INIT_WEIGHTS", path))
    assert f"TRAIN.INIT_WEIGHTS: {path}" in message
    assert "(16, 3, 1, 7, 7) in the file" in message
    assert not output.exists()


def test_a_smoke_run_looks_at_the_weights_of_the_whole_row(weights, cfg, output, main, capsys):
    assert main(command(cfg, output, "--smoke", "TRAIN.INIT_WEIGHTS", weights[0])) == 0
    assert not (output / "init_weights.json").exists()
    weights[0].write_bytes(b"")
    other = output.with_name("other")
    message = refused(
        main, capsys, command(cfg, other, "--smoke", "TRAIN.INIT_WEIGHTS", weights[0])
    )
    assert f"{weights[0]}: is damaged" in message


def test_a_smaller_test_crop_that_the_model_cannot_take_is_refused(cfg, output, main, capsys):
    network = ["MODEL.MODEL_NAME", "I3D", "RESNET.DEPTH", 50, "NONLOCAL.LOCATION", "[[],[],[],[1]]"]
    shapes = ["DATA.TRAIN_CROP_SIZE", 64, "DATA.TRAIN_JITTER_SCALES", "[64,64]"]
    baseline = ["MULTIGRID.LONG_CYCLE", "False", "MULTIGRID.SHORT_CYCLE", "False"]
    message = refused(main, capsys, command(cfg, output, *network, *shapes, *baseline))
    assert "8 frames of 32 x 32 pixels, as DATA.TEST_CROP_SIZE has them: " in message


def test_a_truncated_file_is_refused_with_all_other_problems(
    weights, output, main, capsys, tmp_path, data
):
    path = weights[0]
    path.write_bytes(path.read_bytes()[:-5000])
    (data / "val3.mp4").unlink()
    cfg = write_config(tmp_path / "tiny.yaml", data_keys(data))
    message = refused(main, capsys, command(cfg, output, "TRAIN.INIT_WEIGHTS", path))
    assert "is damaged" in message
    assert "val3.mp4" in message
    assert not output.exists()
