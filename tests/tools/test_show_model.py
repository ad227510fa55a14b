"""show_model.py: the JSON of the contract, the table, and messages for what is wrong."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "experiments" / "quickstart" / "long_short.yaml"


@pytest.fixture
def show(call):
    return lambda *arguments: call("show_model", "--cfg", QUICKSTART, *arguments)


def test_the_json_of_a_small_row(show):
    code, out, err = show("--json")
    shown = json.loads(out)
    assert (code, err) == (0, "")
    assert shown.keys() == {"model", "params", "shapes"}
    shapes = {(c["frames"], c["crop"]): c for c in shown["shapes"]}
    sizes = [(4, 45), (4, 64), (8, 45), (8, 64), (16, 45), (16, 64)]
    clips = dict(zip(sizes, (32, 32, 32, 16, 16, 8), strict=True))
    assert {key: cost["clips"] for key, cost in shapes.items()} == clips
    assert shown["params"] == 2_767_632
    assert shapes[16, 64]["gmacs"] == pytest.approx(2 * shapes[8, 64]["gmacs"], rel=0.01)
    assert shapes[16, 64]["activation_bytes"] == pytest.approx(
        2 * shapes[8, 64]["activation_bytes"], rel=0.05
    )


def test_a_shape_that_the_model_cannot_take_is_one_message(show):
    network = ["MODEL.MODEL_NAME", "I3D", "RESNET.DEPTH", "50", "RESNET.WIDTH_PER_GROUP", "8"]
    short = ["MULTIGRID.SHORT_CYCLE_FACTORS", "[0.5, 0.70711]"]
    code, out, err = show(*network, *short, "NONLOCAL.LOCATION", "[[],[],[1],[1]]")
    assert (code, out) == (2, "")
    assert "4 frames of 32 x 32 pixels" in err


def test_the_check_finds_a_network_that_is_wrong_at_a_shape(show, tmp_path, own_code):
    own = tmp_path / "my_file.py"
    own.write_text(
        "from torch import nn\n"
        "from mgexp.registry import MODELS\n"
        "@MODELS.register()\n"
        "def fixed(cfg):\n"
        "    return nn.Sequential(nn.AvgPool3d((16, 64, 64)), nn.Flatten(), nn.Linear(3, 12))\n"
    )
    arguments = ("--import", str(own), "--check", "MODEL.MODEL_NAME", "fixed")
    code, out, err = show(*arguments)
    assert (code, err) == (1, "")
    lines = [line.split() for line in out.splitlines() if " x " in line]
    assert {"4": "WRONG", "16": "right"}.items() <= {
        line[0]: line[-1] for line in lines if len(line) == 7
    }.items()
    found = json.loads(show("--json", *arguments)[1])
    assert [bool(one["problem"]) for one in found["shapes"]] == [True] * 5 + [False]
