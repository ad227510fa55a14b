"""doctor.py: lines, JSON and exit codes."""

import json
import runpy
from pathlib import Path

import pytest
from tiny import data_keys, write_config

ROOT = Path(__file__).parents[2]


@pytest.fixture
def doctor(capsys):
    """Runs the tool; returns (exit code, stdout, stderr)."""
    main = runpy.run_path(str(ROOT / "tools" / "doctor.py"))["main"]

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_the_machine_alone(doctor):
    code, out, err = doctor()
    assert (code in (0, 3), err) == (True, "")
    assert "torch and torchvision  work together" in out and "core-ms per clip" in out


def test_a_row_with_videos(doctor, tiny_data, tmp_path):
    row = write_config(tmp_path / "tiny.yaml", data_keys(tiny_data))
    _, out, err = doctor("--cfg", row, "--json")
    found = {one["name"]: one for one in json.loads(out)["findings"]}
    assert err == ""
    assert found["precision"]["found"] == "fp32: nothing to check"
    assert "times as fast" in found["does multigrid pay"]["found"]
    assert "core-seconds of loading per step" in found["loading"]["found"]


def test_a_row_whose_videos_are_elsewhere(doctor, tmp_path):
    row = write_config(tmp_path / "tiny.yaml", {"MULTIGRID.SHORT_CYCLE": False})
    _, out, _ = doctor("--cfg", row)
    assert "not measured: the row's videos are not here" in out


def test_bad_input_is_one_message(doctor, tmp_path):
    row = write_config(tmp_path / "tiny.yaml", {})
    code, out, err = doctor("--cfg", row, "TRAIN.PRECISION", "tf32", "MODEL.NUM_CLASSES", "0")
    assert (code, out) == (2, "")
    assert "TRAIN.PRECISION = tf32" in err and "MODEL.NUM_CLASSES" in err
    assert doctor("TRAIN.PRECISION", "fp32")[0] == 2
