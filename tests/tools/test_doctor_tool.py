"""doctor.py: lines, JSON and exit codes."""

import json

import pytest
from tiny import data_keys, load_tool, write_config

from mgexp.errors import TrainingError
from mgexp.plan.doctor import Finding


def test_the_machine_alone(call):
    code, out, err = call("doctor")
    assert (code in (0, 3), err) == (True, "")
    assert "torch and torchvision" in out and "core-ms per clip" in out


@pytest.fixture
def without_machine(monkeypatch):
    """The checks of the machine take seconds."""
    monkeypatch.setattr("mgexp.plan.doctor.machine_findings", lambda: ())


@pytest.mark.usefixtures("without_machine")
def test_a_row_with_videos_and_its_baseline(call, tiny_data, tmp_path):
    row = write_config(tmp_path / "config.yaml", data_keys(tiny_data))
    lines = [{"step": 0, "loss": 3.0}, {"step": 3, "loss": 1.0}]
    text = "".join(json.dumps({**line, "frames": 8, "crop": 32}) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text)
    _, out, err = call("doctor", "--cfg", row, "--run", tmp_path, "--json")
    found = {one["name"]: one for one in json.loads(out)["findings"]}
    assert err == ""
    assert found["precision"]["text"] == "fp32: nothing to check"
    assert found["number of steps"]["status"] == "warning"
    assert found["multigrid: length"]["values"] == {"steps": 10, "takeoff": 4}


def wrong(model, shapes, *_):
    return [f"{shape}: weight gradient of x has cosine 0.500" for shape in shapes]


def too_large(model, shapes, *_):
    raise TrainingError("out of memory at 4x8x32²")


@pytest.mark.parametrize(
    ("check", "text"), [(wrong, "weight gradient of x"), (too_large, "out of memory at 4x8x32²")]
)
@pytest.mark.usefixtures("without_machine")
def test_a_row_that_cannot_train_in_bf16_is_a_problem(check, text, call, tmp_path, monkeypatch):
    monkeypatch.setattr("mgexp.plan.advice.check_precision", check)
    keys = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False}
    keys |= {"TRAIN.PRECISION": "bf16", "DATA.NUM_VIDEOS": 24}
    row = write_config(tmp_path / "tiny.yaml", keys)
    code, out, _ = call("doctor", "--cfg", row)
    assert code == 3
    assert text in out


@pytest.mark.parametrize(("status", "code"), [("OK", 0), ("warning", 0), ("problem", 3)])
def test_a_problem_is_exit_code_3(status, code, monkeypatch, capsys):
    tool = load_tool("doctor")
    monkeypatch.setattr(tool, "machine_findings", lambda: [Finding("c", status, "x", "y")])
    assert tool.main(["--json"]) == code
    assert json.loads(capsys.readouterr().out)["problems"] == (code == 3)
