"""doctor.py: lines, JSON and exit codes."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import data_keys, load_tool, write_config

from mgexp.plan.doctor import Finding
from mgexp.train.precision_check import Agreement, PrecisionCheck

ROOT = Path(__file__).parents[2]


@pytest.fixture
def doctor(capsys):
    """Runs the tool; returns (exit code, stdout, stderr)."""
    main = load_tool("doctor").main

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_the_machine_alone(doctor):
    code, out, err = doctor()
    assert (code in (0, 3), err) == (True, "")
    assert "torch and torchvision" in out and "core-ms per clip" in out


def test_a_missing_package_is_one_line():
    code = "import runpy, sys; sys.modules['fvcore'] = None; runpy.run_path('tools/doctor.py')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("doctor.py: the package fvcore")
    assert len(done.stderr.splitlines()) == 1


def test_a_row_with_videos(doctor, tiny_data, tmp_path):
    row = write_config(tmp_path / "tiny.yaml", data_keys(tiny_data))
    _, out, err = doctor("--cfg", row, "--json")
    found = {one["name"]: one for one in json.loads(out)["findings"]}
    assert err == ""
    assert {"precision", "speed"} < found.keys()
    assert found["loading"]["values"]["cores"] > 0
    assert len(found["steps"]["values"]) == 8
    assert found["number of steps"]["status"] == "warning"


@pytest.mark.parametrize(("is_here", "num_videos"), [(True, 24), (False, 7)])
def test_videos_that_are_here_are_counted(is_here, num_videos, tiny_data, tmp_path):
    keys = data_keys(tiny_data) if is_here else {}
    row = write_config(tmp_path / "tiny.yaml", {**keys, "DATA.NUM_VIDEOS": 7})
    tool = runpy.run_path(str(ROOT / "tools" / "doctor.py"))
    _, schedule = tool["load_row"](tool["parse"](["--cfg", str(row)]))
    assert schedule.num_videos == num_videos


def test_a_row_that_bf16_is_wrong_for_is_a_problem(doctor, tmp_path, monkeypatch):
    def wrong(model, shapes, *_):
        fault = Agreement("weight gradient of x", 0.5, 1.0, 1.0)
        return [PrecisionCheck(shape, (fault,), 0.5) for shape in shapes]

    monkeypatch.setattr("mgexp.plan.advice.check_precision", wrong)
    keys = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False}
    keys |= {"TRAIN.PRECISION": "bf16", "DATA.NUM_VIDEOS": 24}
    row = write_config(tmp_path / "tiny.yaml", keys)
    code, out, _ = doctor("--cfg", row)
    assert code == 3
    assert "weight gradient of x" in out


def test_bad_input_is_one_message(doctor, tmp_path):
    row = write_config(tmp_path / "tiny.yaml", {})
    code, out, err = doctor("--cfg", row, "TRAIN.PRECISION", "tf32", "MODEL.NUM_CLASSES", "0")
    assert (code, out) == (2, "")
    assert "TRAIN.PRECISION" in err and "MODEL.NUM_CLASSES" in err


@pytest.mark.parametrize(("status", "code"), [("OK", 0), ("warning", 0), ("problem", 3)])
def test_a_problem_is_exit_code_3(status, code, monkeypatch, capsys):
    tool = load_tool("doctor")
    monkeypatch.setattr(tool, "machine_findings", lambda: [Finding("c", status, "x", "y")])
    assert tool.main(["--json"]) == code
    assert json.loads(capsys.readouterr().out)["problems"] == (code == 3)
