"""Slow tests run with --slow only; torch takes one thread, as two cores are few for many tests."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny import command, data_keys, run_net, write_config, write_dataset


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


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
