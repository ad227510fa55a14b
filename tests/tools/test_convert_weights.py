"""convert_weights.py: from foreign files to ours, whole or not at all."""

from pathlib import Path

import pytest
import torch

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
def convert(call):
    return lambda source, output, *arguments: call(
        "convert_weights", source, output, "--cfg", ROW, *SMALL, *arguments
    )


def pyslowfast_state(model):
    state = model.state_dict()
    rename = names.pyslowfast_names(state.keys())
    return {rename(name): value for name, value in state.items()}


def test_pyslowfasts_file_to_ours(model, convert, tmp_path):
    theirs = pyslowfast_state(model)
    assert "s1.pathway0_stem.conv.weight" in theirs
    torch.save({"model_state": theirs, "epoch": 3}, tmp_path / "theirs.pyth")
    output = tmp_path / "ours.safetensors"
    code, _, err = convert(tmp_path / "theirs.pyth", output)
    assert (code, err) == (0, "")
    found = read_weights(output).tensors
    assert found.keys() == model.state_dict().keys()
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("output", "arguments"), [("ours.pt", ["RESNET.DEPTH", "101"]), ("theirs.pyth", [])]
)
def test_what_does_not_fit_or_exists_is_not_written(output, arguments, model, convert, tmp_path):
    torch.save(pyslowfast_state(model), tmp_path / "theirs.pyth")
    before = (tmp_path / "theirs.pyth").read_bytes()
    code, out, _ = convert(tmp_path / "theirs.pyth", tmp_path / output, *arguments)
    assert (code, out) == (2, "")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]
