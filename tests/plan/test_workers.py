"""Workers from measured seconds, by hand, and "auto", which becomes a number before a run."""

import math
import time

import pytest
import torch
from tiny import data_keys, tiny_config

from mgexp.dist import Processes
from mgexp.plan import workers
from mgexp.plan.workers import Workers, build_chooser, choose_workers, most_workers
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


def test_the_second_step_and_the_timed_clips_decide(cfg, monkeypatch):
    given = []

    def choose(load, step, **limits):
        given.append((load, step, limits["max_workers"]))
        return Workers(3, 1)

    monkeypatch.setattr(workers, "choose_workers", choose)
    monkeypatch.setattr(workers, "num_cores", lambda: 6)
    chooser = build_chooser(cfg, build_inputs(cfg, [], 1), Processes(local_count=2, count=2), CPU)
    seconds = iter((0.5, 0.1))
    found = chooser(lambda: time.sleep(next(seconds)))
    assert (found.NUM_WORKERS, found.PREFETCH_FACTOR) == (3, 1)
    ((load, step, most),) = given
    assert 0 < load < 10
    assert 0.1 <= step < 0.5
    assert most == 3


def test_a_number_needs_no_choice(tiny_data, tmp_path):
    cfg = tiny_config(tmp_path, {**data_keys(tiny_data), "DATA_LOADER.NUM_WORKERS": 1})
    assert build_chooser(cfg, build_inputs(cfg, [], 1), Processes(), CPU) is None


def test_whoever_plans_takes_auto_for_as_many_as_it_may_choose(monkeypatch):
    monkeypatch.setattr(workers, "num_cores", lambda: 6)
    assert most_workers("auto") == 6
    assert most_workers(3) == 3
