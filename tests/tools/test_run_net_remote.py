"""Runs that start from weights at addresses, and outputs at addresses, which are refused."""

from __future__ import annotations

import argparse
import hashlib

import pytest
from served import served
from tiny import command

from mgexp.options import local_folder
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


def test_outputs_at_addresses_are_refused():
    with pytest.raises(argparse.ArgumentTypeError, match="is an address"):
        local_folder("s3://bucket/runs")
