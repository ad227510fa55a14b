"""The files of docs/own_model.md train, resume and predict as those of any other row."""

import json
import re
from pathlib import Path

import pytest
import torch
import yaml
from run_files import losses
from tiny import command, data_keys, load_tool, run_net, write_config
from torch import nn

from mgexp.registry import MODELS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_model.py"
PAGE = (ROOT / "docs" / "own_model.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.usefixtures("own_code")


@pytest.fixture
def cfg(tiny_data, tmp_path):
    keys = {"MODEL.MODEL_NAME": "PatchNet", "PATCHNET.WIDTH": 4, "PATCHNET.DEPTH": 1}
    return write_config(tmp_path / "tiny.yaml", {**data_keys(tiny_data), **keys})


def test_the_network_trains_and_predicts(cfg, tiny_data, tmp_path, capsys):
    run = tmp_path / "run"
    assert run_net().main([*command(cfg, run), "--import", str(EXAMPLE)]) == 0
    assert len(losses(run)) == 10
    environment = json.loads((run / "environment.json").read_text())
    assert environment["imports"].startswith(f"{EXAMPLE} (")
    predict = load_tool("predict").main
    capsys.readouterr()
    arguments = [str(tiny_data / "val0.mp4"), "--run", str(run), "--import", str(EXAMPLE)]
    assert predict([*arguments, "--json"]) == 0


def test_a_network_that_reads_numbers_as_it_is_made_starts_from_its_own_weights(
    tiny_data, tmp_path
):
    """As torchvision's and timm's transformers do. On the meta device there are no numbers."""

    @MODELS.register()
    class Rates(nn.Sequential):
        def __init__(self, cfg):
            rates = torch.linspace(0, 0.5, 3).tolist()
            pool, end = nn.AdaptiveAvgPool3d(1), nn.Linear(3, cfg.MODEL.NUM_CLASSES)
            super().__init__(pool, nn.Flatten(), nn.Dropout(rates[1]), end)

    keys = {**data_keys(tiny_data), "MODEL.MODEL_NAME": "Rates"}
    cfg = write_config(tmp_path / "tiny.yaml", keys)
    first, second = tmp_path / "first", tmp_path / "second"
    assert run_net().main(command(cfg, first)) == 0
    given = ("TRAIN.INIT_WEIGHTS", first / "model.pt")
    assert run_net().main(command(cfg, second, *given)) == 0
    used = json.loads((second / "init_weights.json").read_text())
    assert sorted(used["used"]) == ["3.bias", "3.weight"]
    assert losses(first)[0] != losses(second)[0]


def test_the_yaml_is_a_row_over_the_quickstart():
    values = yaml.safe_load(EXAMPLE.with_suffix(".yaml").read_text())
    assert (EXAMPLE.parent / values["_BASE_"]).is_file()
    show = load_tool("show_model").main
    names = ["--import", str(EXAMPLE), "--cfg", str(EXAMPLE.with_suffix(".yaml"))]
    assert show([*names, "--check"]) == 0


def test_the_optimizer_and_the_loss_of_the_page_train(tiny_data, tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    own = tmp_path / "my_file.py"
    own.write_text(code)
    cfg = write_config(tmp_path / "tiny.yaml", data_keys(tiny_data))
    names = ("SOLVER.OPTIMIZING_METHOD", "nadam", "MODEL.LOSS_FUNC", "smooth")
    smoke = ["--smoke", "--import", str(own)]
    assert run_net().main([*command(cfg, tmp_path / "run", *names), *smoke]) == 0
    plain = ("SOLVER.OPTIMIZING_METHOD", "nadam")
    assert run_net().main([*command(cfg, tmp_path / "plain", *plain), *smoke]) == 0
    # The loss with smoothed labels is another one from the first step on.
    assert losses(tmp_path / "run")[0] != losses(tmp_path / "plain")[0]
