"""Runs of the tiny row through run_net.py, in this process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from run_files import interrupt_in
from tiny import command, data_keys, run_net, write_config


@pytest.fixture(scope="module")
def main():
    return run_net().main


@pytest.fixture
def cfg(tiny_data, tmp_path):
    return write_config(tmp_path / "tiny.yaml", data_keys(tiny_data))


@pytest.fixture
def output(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def data(tiny_data, tmp_path):
    """A copy of the data set, to break."""
    return Path(shutil.copytree(tiny_data, tmp_path / "data"))


@pytest.fixture
def interrupted(cfg, output, main, monkeypatch):
    """A run folder that stopped after three steps."""
    interrupt_in(2, monkeypatch)
    assert main(command(cfg, output)) == 4
    monkeypatch.undo()
    return output
