"""One cluster for each file of tests, and the runs that theirs must equal."""

import pytest
from cluster import Cluster, missing
from jobs import SHORT, call, longer
from run_files import torchrun
from tiny import TOOL, command, data_keys, write_config


@pytest.fixture(scope="module")
def cluster(request, tmp_path_factory):
    """A running cluster; a file may say SENDS_USER_SIGNAL = False."""
    if missing():
        pytest.skip(missing())
    found = Cluster(tmp_path_factory.mktemp("slurm"))
    found.start(getattr(request.module, "SENDS_USER_SIGNAL", True))
    yield found
    found.stop()


@pytest.fixture(scope="session")
def short(tiny_data, tmp_path_factory):
    """A YAML whose training lasts some ten seconds."""
    return write_config(
        tmp_path_factory.mktemp("yaml") / "short.yaml", {**data_keys(tiny_data), **SHORT}
    )


@pytest.fixture(scope="session")
def long(tiny_data, short_run, tmp_path_factory):
    """A YAML whose training lasts longer than half a minute."""
    changes = {**data_keys(tiny_data), **longer(short_run)}
    return write_config(tmp_path_factory.mktemp("yaml") / "long.yaml", changes)


def undisturbed(cfg, tmp_path_factory):
    output = tmp_path_factory.mktemp("reference") / "run"
    call(TOOL, command(cfg, output))
    return output


@pytest.fixture(scope="session")
def short_run(short, tmp_path_factory):
    return undisturbed(short, tmp_path_factory)


@pytest.fixture(scope="session")
def long_run(long, tmp_path_factory):
    return undisturbed(long, tmp_path_factory)


@pytest.fixture(scope="session")
def short_run_of_two(short, tmp_path_factory):
    output = tmp_path_factory.mktemp("reference") / "run"
    torchrun(command(short, output))
    return output


@pytest.fixture
def output(tmp_path):
    return tmp_path / "run"
