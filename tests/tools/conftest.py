"""Runs of the tiny row through run_net.py, in this process."""

import shutil
from pathlib import Path

import pytest
from run_files import stop_in
from tiny import command, data_keys, load_tool, run_net, write_config


@pytest.fixture(scope="module")
def main():
    return run_net().main


@pytest.fixture
def call(capsys):
    """Runs a tool by its name; its exit code, standard output and standard error."""

    def run(name, *arguments):
        code = load_tool(name).main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


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


@pytest.fixture(scope="session")
def stopped_run(tiny_data, tmp_path_factory):
    """The folder of a run of the tiny row that stopped after three steps; read only."""
    folder = tmp_path_factory.mktemp("stopped")
    cfg = write_config(folder / "tiny.yaml", data_keys(tiny_data))
    stop_in(2, run_net().main, command(cfg, folder / "run"))
    return folder / "run"


@pytest.fixture
def interrupted(stopped_run, output):
    """A copy of it, to go on with."""
    return Path(shutil.copytree(stopped_run, output))
