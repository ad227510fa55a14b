"""Slow tests run with --slow only, those of Slurm with --slurm; torch takes one thread, as two cores are few."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny import command, data_keys, run_net, write_config, write_dataset


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests too")
    parser.addoption("--slurm", action="store_true", help="run the tests that start a Slurm too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for kind, how in (("slow", "--slow"), ("slurm", "tools/test.sh --slurm")):
        if not config.getoption(f"--{kind}"):
            for item in items:
                if item.get_closest_marker(kind):
                    item.add_marker(pytest.mark.skip(reason=f"{kind}: run with {how}"))


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of small videos; read only."""
    return write_dataset(tmp_path_factory.mktemp("tiny_data"))


@pytest.fixture(scope="session")
def finished_run(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run of the tiny row; read only."""
    folder = tmp_path_factory.mktemp("finished")
    cfg = write_config(folder / "tiny.yaml", data_keys(tiny_data))
    assert run_net().main(command(cfg, folder / "run")) == 0
    return folder / "run"
