"""Workers that are asked for as "auto" become a number before a run."""

import pytest
import torch
from tiny import data_keys, tiny_config

from mgexp.dist import Processes
from mgexp.plan import workers as auto
from mgexp.plan.workers import Workers
from mgexp.train.setup import build_inputs

CPU = torch.device("cpu")


@pytest.fixture
def cfg(tiny_data, tmp_path):
    keys = {**data_keys(tiny_data), "DATA_LOADER.NUM_WORKERS": "auto"}
    return tiny_config(tmp_path, keys)


def test_measured_seconds_decide(cfg, monkeypatch):
    inputs, given = build_inputs(cfg, [], 1), []

    def choose(load, step, **limits):
        given.append((load, step, limits["max_workers"]))
        return Workers(3, 1)

    monkeypatch.setattr(auto, "choose_workers", choose)
    monkeypatch.setattr(auto, "num_cores", lambda: 6)
    found = auto.with_workers(cfg, inputs, Processes(local_count=2, count=2), CPU)
    assert (found.DATA_LOADER.NUM_WORKERS, found.DATA_LOADER.PREFETCH_FACTOR) == (3, 1)
    ((load, step, most),) = given
    assert 0 < load < 10
    assert 0 < step < 10
    assert most == 3
    assert cfg.DATA_LOADER.NUM_WORKERS == "auto"  # a new value, not an edit


def test_a_number_is_left_as_it_is(tiny_data, tmp_path):
    cfg = tiny_config(tmp_path, {**data_keys(tiny_data), "DATA_LOADER.NUM_WORKERS": 1})
    assert auto.with_workers(cfg, build_inputs(cfg, [], 1), Processes(), CPU) is cfg


def test_whoever_plans_takes_auto_for_as_many_as_it_may_choose(
    cfg, tiny_data, tmp_path, monkeypatch
):
    monkeypatch.setattr(auto, "num_cores", lambda: 6)
    assert auto.num_workers_of(cfg) == 6
    assert auto.num_workers_of(tiny_config(tmp_path, {"DATA_LOADER.NUM_WORKERS": 3})) == 3
