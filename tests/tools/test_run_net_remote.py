"""Runs whose weights, lists and store are at addresses, and outputs at addresses, which are refused."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
from run_files import refused
from served import served
from tiny import command, load_tool

from mgexp.run.files import read_json

pytestmark = pytest.mark.usefixtures("own_code")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_run_starts_from_weights_of_a_web_server(main, cfg, output, finished_run):
    digest = hashlib.sha256((finished_run / "model.pt").read_bytes()).hexdigest()
    with served(finished_run) as (address, _):
        for checked in ("", f"#sha256={digest}"):
            weights = ("TRAIN.INIT_WEIGHTS", f"{address}/model.pt{checked}")
            assert main(command(cfg, output / checked, *weights)) == 0
            found = read_json(output / checked / "init_weights.json")
            assert found["sha256"] == digest
            assert found["left"] == []
            said = f"no checksum is known for this file; it has #sha256={digest}"
            assert (output / checked / "log.txt").read_text().count(said) == (not checked)


def test_weights_with_another_sum_are_refused(main, cfg, output, finished_run, capsys):
    with served(finished_run) as (address, _):
        weights = ("TRAIN.INIT_WEIGHTS", f"{address}/model.pt#sha256={'1' * 64}")
        message = refused(main, capsys, command(cfg, output, *weights))
    assert "1 problem found" in message
    assert "TRAIN.INIT_WEIGHTS: http" in message
    assert not output.exists()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("run_net", ["--cfg", "a.yaml", "--output"]),
        ("sweep", ["--cfg", "a.yaml", "--output"]),
        ("check_data", ["--cfg", "a.yaml", "--output"]),
        ("prepare_data", ["--cfg", "a.yaml", "--store"]),
    ],
)
def test_outputs_at_addresses_are_refused(tool, arguments, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [tool, *arguments, "s3://bucket/runs"])
    with pytest.raises(SystemExit) as exited:
        load_tool(tool).main(sys.argv[1:])
    assert exited.value.code == 2
    message = capsys.readouterr().err
    assert f"argument {arguments[-1]}: s3://bucket/runs is an address: give a folder" in message
    assert list(Path.cwd().iterdir()) == []
