"""convert_weights.py: from foreign files to ours, whole or not at all."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from legacy_names import caffe2_name
from tiny import load_tool

from mgexp.config.load import load_config
from mgexp.models import names
from mgexp.models.build import build_model
from mgexp.models.weights import read_weights

ROOT = Path(__file__).parents[2]

ROW = ROOT / "experiments" / "main" / "k400_slowfast_8x8_r50" / "baseline.yaml"
SMALL = ["RESNET.WIDTH_PER_GROUP", "8", "MODEL.NUM_CLASSES", "5"]


@pytest.fixture
def model():
    return build_model(load_config(ROW, SMALL))


@pytest.fixture
def convert(capsys):
    """Runs the tool; returns (exit code, stdout, stderr)."""
    main = load_tool("convert_weights").main

    def run(source, output, *arguments):
        small = SMALL[:2] if "MODEL.NUM_CLASSES" in arguments else SMALL
        code = main([str(source), str(output), "--cfg", str(ROW), *small, *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def pyslowfast_state(model):
    state = model.state_dict()
    rename = names.pyslowfast_names(state.keys())
    return {rename(name): value for name, value in state.items()}


def test_pyslowfasts_file_to_ours(model, convert, tmp_path):
    torch.save({"model_state": pyslowfast_state(model), "epoch": 3}, tmp_path / "theirs.pyth")
    output = tmp_path / "ours.safetensors"
    code, _, err = convert(tmp_path / "theirs.pyth", output)
    assert (code, err) == (0, "")
    found = read_weights(output).tensors
    assert found.keys() == model.state_dict().keys()
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())


def test_a_legacy_pickle_to_ours(model, convert, tmp_path):
    blobs = {
        caffe2_name(n): v.numpy() for n, v in pyslowfast_state(model).items() if caffe2_name(n)
    }
    (tmp_path / "theirs.pkl").write_bytes(pickle.dumps({"blobs": blobs}, protocol=2))
    code, _, _ = convert(tmp_path / "theirs.pkl", tmp_path / "ours.safetensors")
    assert code == 0
    found = read_weights(tmp_path / "ours.safetensors").tensors
    weights = {n: v for n, v in model.state_dict().items() if not n.endswith("tracked")}
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], value) for name, value in weights.items())


def test_json_lists_every_tensor(model, convert, tmp_path):
    torch.save(pyslowfast_state(model), tmp_path / "theirs.pyth")
    arguments = ["MODEL.NUM_CLASSES", "7", "--json"]
    code, out, _ = convert(tmp_path / "theirs.pyth", tmp_path / "ours.pt", *arguments)
    record = json.loads(out)
    assert code == 0
    assert record["left"] == ["blocks.6.proj.weight", "blocks.6.proj.bias"]
    assert record["unused"] == ["head.projection.weight", "head.projection.bias"]
    assert {*record["used"], *record["left"]} == {*model.state_dict()}


@pytest.mark.parametrize(
    ("output", "arguments"), [("ours.pt", ["RESNET.DEPTH", "101"]), ("theirs.pyth", [])]
)
def test_what_does_not_fit_or_exists_is_not_written(output, arguments, model, convert, tmp_path):
    torch.save(pyslowfast_state(model), tmp_path / "theirs.pyth")
    before = (tmp_path / "theirs.pyth").read_bytes()
    code, out, _ = convert(tmp_path / "theirs.pyth", tmp_path / output, *arguments)
    assert (code, out) == (2, "")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_weights_of_a_network_of_ones_own(tmp_path, own_code):
    code = """from torch import nn
from mgexp.registry import MODELS
MODELS.add("Linear", lambda cfg: nn.Linear(2, cfg.MODEL.NUM_CLASSES))
"""
    (tmp_path / "my_network.py").write_text(code)
    (tmp_path / "row.yaml").write_text("MODEL: {MODEL_NAME: Linear, NUM_CLASSES: 3}")
    torch.save({"weight": torch.ones(3, 2), "bias": torch.zeros(3)}, tmp_path / "mine.pt")
    main = load_tool("convert_weights").main
    paths = (tmp_path / "mine.pt", tmp_path / "ours.pt", "--cfg", tmp_path / "row.yaml")
    assert main([*map(str, paths), "--import", str(tmp_path / "my_network.py")]) == 0
    assert (tmp_path / "ours.pt").exists()
