"""Workers from measured seconds, by hand, and "auto", which becomes a number before a run."""

import math

import pytest
import torch
from tiny import data_keys, tiny_config

from mgexp.dist import Processes
from mgexp.plan import workers
from mgexp.plan.workers import Workers, build_workers, choose_workers, most_workers
from mgexp.train.setup import build_inputs

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("load", "step", "most", "chosen"),
    [
        (3.0, 1.0, 16, 4),  # 3.75
        (0.01, 1.0, 16, 1),
        (30.0, 1.0, 8, 8),
        (30.0, 1.0, 0, 1),
    ],
)
def test_workers_load_a_step_while_one_is_trained(load, step, most, chosen):
    assert choose_workers(load, step, most, 10, math.inf) == Workers(chosen, 2)


@pytest.mark.parametrize(
    ("free", "chosen"),
    [
        (90, Workers(4, 2)),
        (89, Workers(4, 1)),
        (50, Workers(4, 1)),
        (40, Workers(3, 1)),
        (5, Workers(1, 1)),
    ],
)
def test_batches_fit_into_shared_memory_beside_the_one_in_use(free, chosen):
    assert choose_workers(3.0, 1.0, 16, 10, free) == chosen


@pytest.fixture
def cfg(tiny_data, tmp_path):
    keys = {**data_keys(tiny_data), "DATA_LOADER.NUM_WORKERS": "auto"}
    return tiny_config(tmp_path, keys)


def test_measured_seconds_decide(cfg, monkeypatch):
    inputs, given = build_inputs(cfg, [], 1), []

    def choose(load, step, **limits):
        given.append((load, step, limits["max_workers"]))
        return Workers(3, 1)

    monkeypatch.setattr(workers, "choose_workers", choose)
    monkeypatch.setattr(workers, "num_cores", lambda: 6)
    found = build_workers(cfg, inputs, Processes(local_count=2, count=2), CPU)
    assert (found.DATA_LOADER.NUM_WORKERS, found.DATA_LOADER.PREFETCH_FACTOR) == (3, 1)
    ((load, step, most),) = given
    assert 0 < load < 10
    assert 0 < step < 10
    assert most == 3
    assert cfg.DATA_LOADER.NUM_WORKERS == "auto"  # a new value, not an edit


def test_a_number_is_left_as_it_is(tiny_data, tmp_path):
    cfg = tiny_config(tmp_path, {**data_keys(tiny_data), "DATA_LOADER.NUM_WORKERS": 1})
    assert build_workers(cfg, build_inputs(cfg, [], 1), Processes(), CPU) is cfg


def test_whoever_plans_takes_auto_for_as_many_as_it_may_choose(monkeypatch):
    monkeypatch.setattr(workers, "num_cores", lambda: 6)
    assert most_workers("auto") == 6
    assert most_workers(3) == 3
