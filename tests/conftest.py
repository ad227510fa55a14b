"""Slow tests run with --slow only, those of Slurm with --slurm; torch takes one thread, as two cores are few."""

import copy
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_gpu import fake_gpu  # noqa: F401 - a fixture of all tests
from own_code import own_code  # noqa: F401 - as that one
from tiny import command, data_keys, run_net, write_config, write_dataset

from mgexp.config.load import flatten
from mgexp.models import cost
from mgexp.models.build import OURS
from mgexp.train import setup

GUESTS = {"benchmarks", "examples", "notebooks"}
"""Folders of tests that --slow runs: they test what uses the package, and nothing of it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests too")
    parser.addoption("--slurm", action="store_true", help="run the tests that start a Slurm too")
    parser.addoption(
        "--gpu", choices=("cuda", "cpu"), help="run the tests of tests/gpu on that device too"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without --slow, guests are not even imported: their libraries take 10 seconds in each process."""
    is_guest = collection_path.name in GUESTS and collection_path.parent.name == "tests"
    return True if is_guest and not config.getoption("--slow") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(config.rootpath / "tests").parts[0] in GUESTS:
            item.add_marker("slow")
        if any(item.get_closest_marker(kind) for kind in ("slow", "slurm", "gpu")):
            item.add_marker(pytest.mark.timeout(3600))
    for kind, how in (
        ("slow", "--slow"),
        ("slurm", "tools/test.sh --slurm"),
        ("gpu", "--gpu cuda"),
    ):
        if not config.getoption(f"--{kind}"):
            for item in items:
                if item.get_closest_marker(kind):
                    item.add_marker(pytest.mark.skip(reason=f"{kind}: run with {how}"))


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def networks_are_counted_once() -> Iterator[None]:
    """Runs of the same network share its FLOPs and the check of its shapes, which take half of a tiny run.

    They depend on nothing but the network and the shapes. tests/models tests the functions themselves.
    """
    # What build_network reads.
    sections = ("MODEL", "RESNET", "SLOWFAST", "NONLOCAL", "VIT", "MVIT", "X3D")

    def network_of(cfg: Any) -> object:
        if cfg.MODEL.MODEL_NAME not in OURS:
            return object()  # two tests may mean two networks by one name
        full = (cfg.DATA.NUM_FRAMES, cfg.DATA.TRAIN_CROP_SIZE)
        return full, *(pair for pair in flatten(cfg) if pair[0].split(".")[0] in sections)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "macs_by_shape", _remembered_by_shape(cost.macs_by_shape))
        patch.setattr(setup, "products_by_shape", _remembered_by_shape(setup.products_by_shape))
        patch.setattr(setup, "build_problems", _remembered(setup.build_problems, network_of))
        yield


def _remembered(
    function: Callable[..., Any], key_of: Callable[[Any], object]
) -> Callable[..., Any]:
    """``function`` of a network and shapes, called once for networks of the same key."""
    known: dict[object, Any] = {}

    def call(network: Any, shapes: Any, *others: Any) -> Any:
        key = (key_of(network), frozenset(shapes), others)
        if key not in known:
            known[key] = function(network, key[1], *others)
        return copy.copy(known[key])

    return call


def _remembered_by_shape(function: Callable[..., dict[Any, int]]) -> Callable[..., dict[Any, int]]:
    """``function`` of a network and shapes, which gives a number for each shape, called once for each of them."""
    known: dict[object, dict[Any, int]] = {}

    def call(network: Any, shapes: Any) -> dict[Any, int]:
        found = known.setdefault(repr(network), {})
        found |= function(network, set(shapes) - found.keys())
        return {shape: found[shape] for shape in sorted(set(shapes))}

    return call


@pytest.fixture
def hangups_reach_us() -> Iterator[None]:
    """Programs that were started by nohup ignore SIGHUP, and so do all that they start: for one test, end that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


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
