"""tools/export.py on the model of a finished run."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from tiny import load_tool

from mgexp.deploy import export


@pytest.fixture
def tool():
    return load_tool("export")


@pytest.fixture
def start(tool, finished_run, tmp_path):
    """Starts the tool on the tiny run; its exit code."""
    fixed = ["--run", str(finished_run), "--output", str(tmp_path / "out")]
    return lambda *arguments: tool.main([*fixed, *map(str, arguments)])


@pytest.fixture
def untraced(tool, monkeypatch):
    """Replaces the minutes of tracing by an error that a network would give."""

    def fail(model, shape, path):
        raise export.TrainingError("torch.export cannot export Own: UserError: no")

    monkeypatch.setattr(tool, "export_program", fail)


@pytest.mark.slow
def test_all_files_are_written_and_the_deviations_printed(start, finished_run, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    (tmp_path / "classes.txt").write_text("right\nleft\n")
    assert start("--classes", tmp_path / "classes.txt") == 0
    lines = capsys.readouterr().out.splitlines()
    out = tmp_path / "out"
    names = ["model.safetensors", "preprocessing.json", "model.pt2", "load_model.py", "model.onnx"]
    assert [line.split(": ")[0] for line in lines] == [str(out / name) for name in names]
    assert all(
        "of the largest logit" in line for line in lines if ".pt2" in line or ".onnx" in line
    )
    assert sorted(path.name for path in out.iterdir()) == sorted(names)
    assert json.loads((out / "preprocessing.json").read_text())["classes"] == ["right", "left"]
    state = torch.load(finished_run / "model.pt", weights_only=True)
    assert all(torch.equal(load_file(out / names[0])[name], state[name]) for name in state)


def test_a_network_that_cannot_be_exported_keeps_its_weights_and_is_exit_code_1(
    start, untraced, tmp_path, capsys
):
    assert start() == 1
    assert "cannot export Own: UserError: no" in capsys.readouterr().err
    found = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert found == ["model.safetensors", "preprocessing.json"]


def test_missing_packages_are_bad_input_before_anything_is_written(
    start, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(export, "ONNX_PACKAGES", ("no_such_package",))
    assert start() == 2
    assert "pip install --editable '.[export]', or leave ONNX out with --formats torch" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()


def test_without_onnx_its_packages_are_not_needed(start, untraced, monkeypatch):
    monkeypatch.setattr(export, "ONNX_PACKAGES", ("no_such_package",))
    assert start("--formats", "torch") == 1  # the tracing, which is replaced here, has begun


def test_all_problems_come_in_one_message(start, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(export, "ONNX_PACKAGES", ("no_such_package",))
    (tmp_path / "classes.txt").write_text("one\ntwo\nthree\n")
    assert start("--classes", tmp_path / "classes.txt") == 2
    message = capsys.readouterr().err
    assert "2 problems found" in message
    assert "names 3 classes, the model has 2" in message


def test_a_folder_that_is_no_run_is_bad_input(tool, tmp_path, capsys):
    assert tool.main(["--run", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert "is not a run folder" in capsys.readouterr().err


def test_ctrl_c_is_one_line(start, tool, monkeypatch, capsys):
    import os
    import signal

    monkeypatch.setattr(tool, "write_plain_files", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    assert start() == 4
    assert capsys.readouterr().err.splitlines() == [
        "export.py: stopped by SIGINT; files that were not checked yet are not kept"
    ]


def test_a_model_of_another_configuration_is_refused(tool, finished_run, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    text = (finished_run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("NUM_CLASSES: 2", "NUM_CLASSES: 3"))
    shutil.copy(finished_run / "model.pt", run)
    assert tool.main(["--run", str(run), "--output", str(tmp_path / "out")]) == 2
    assert "is not the model of" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
