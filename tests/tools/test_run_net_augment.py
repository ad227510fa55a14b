"""Runs of the tiny row with augmentation: on other clips, and on the same ones whenever they are loaded."""

from __future__ import annotations

import pytest
from run_files import assert_bit_identical, interrupt_in, losses
from tiny import command, data_keys, write_config

KEYS = {"AUG.RANDAUGMENT_OPS": 2, "AUG.COLOR_JITTER": 0.4, "AUG.RE_PROB": 0.5}


@pytest.fixture(scope="module")
def augmented(tiny_data, main, tmp_path_factory):
    """YAML and folder of a finished run with every part of the augmentation."""
    folder = tmp_path_factory.mktemp("augmented")
    cfg = write_config(folder / "tiny.yaml", {**data_keys(tiny_data), **KEYS})
    assert main(command(cfg, folder / "run")) == 0
    return cfg, folder / "run"


def test_the_keys_change_what_is_trained_on(augmented, finished_run):
    _, folder = augmented
    pairs = zip(losses(folder), losses(finished_run), strict=True)
    assert all(one != other for one, other in pairs)


def test_workers_and_an_interruption_change_nothing(augmented, output, main, monkeypatch):
    cfg, folder = augmented
    arguments = command(cfg, output, "DATA_LOADER.NUM_WORKERS", 2)
    interrupt_in(4, monkeypatch)
    assert main(arguments) == 4
    monkeypatch.undo()
    assert main(arguments) == 0
    assert losses(output) == losses(folder)
    assert_bit_identical(output, folder)
