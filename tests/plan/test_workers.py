"""Workers from measured seconds, by hand, and "auto", which becomes a number before a run."""

import math
import time

import pytest
import torch
from tiny import data_keys, tiny_config

from mgexp.config.keys import DataLoaderKeys
from mgexp.dist import Processes
from mgexp.plan import workers
from mgexp.plan.workers import (
    build_chooser,
    build_evaluation_workers,
    choose_workers,
    most_workers,
    workers_needed,
)
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
    needed = workers_needed(load, step)
    assert choose_workers(needed, most, 10, math.inf) == DataLoaderKeys(chosen, 2)


@pytest.mark.parametrize(
    ("free", "chosen"),
    [
        (90, DataLoaderKeys(4, 2)),
        (89, DataLoaderKeys(4, 1)),
        (50, DataLoaderKeys(4, 1)),
        (40, DataLoaderKeys(3, 1)),
        (5, DataLoaderKeys(1, 1)),
    ],
)
def test_batches_fit_into_shared_memory_beside_the_one_in_use(free, chosen):
    assert choose_workers(4, 16, 10, free) == chosen


@pytest.fixture
def cfg(tiny_data, tmp_path):
    keys = {**data_keys(tiny_data), "DATA_LOADER.NUM_WORKERS": "auto"}
    return tiny_config(tmp_path, keys)


def test_the_second_step_and_the_timed_clips_decide(cfg, monkeypatch):
    given = []

    def choose(needed, **limits):
        given.append(limits["max_workers"])
        return DataLoaderKeys(3, 1)

    def need(load, step):
        given.extend((load, step))
        return 4

    monkeypatch.setattr(workers, "choose_workers", choose)
    monkeypatch.setattr(workers, "workers_needed", need)
    monkeypatch.setattr(workers, "num_local_cores", lambda _: 6)
    chooser = build_chooser(cfg, build_inputs(cfg, [], 1), Processes(local_count=2, count=2), CPU)
    seconds = iter((0.5, 0.1))
    found = chooser(lambda: time.sleep(next(seconds)))
    assert (found.NUM_WORKERS, found.PREFETCH_FACTOR) == (3, 1)
    load, step, most = given
    assert 0 < load < 10
    assert 0.1 <= step < 0.5
    assert most == 3


@pytest.mark.parametrize(
    ("others", "wanted"),
    [
        ("here 4 5 6 7", 8),  # each process has cores of its own
        ("here 0 1 2 3", 4),  # both have all cores
        ("elsewhere 4 5 6 7", 4),
    ],
)
def test_processes_of_a_machine_have_the_cores_of_all(others, wanted, monkeypatch):
    monkeypatch.setattr(workers.platform, "node", lambda: "here")
    monkeypatch.setattr(workers, "allowed_cores", lambda: {0, 1, 2, 3})
    monkeypatch.setattr(workers, "within_quota", lambda number: number)
    monkeypatch.setattr(workers.dist, "merge", lambda _, own: {**own, 1: others})
    assert workers.num_local_cores(Processes(count=2, local_count=2)) == wanted


def test_a_number_needs_no_choice(tiny_data, tmp_path):
    cfg = tiny_config(tmp_path, {**data_keys(tiny_data), "DATA_LOADER.NUM_WORKERS": 1})
    assert build_chooser(cfg, build_inputs(cfg, [], 1), Processes(), CPU) is None


def test_whoever_plans_takes_auto_for_as_many_as_it_may_choose():
    assert most_workers("auto", 6) == 6
    assert most_workers(3, 6) == 3


@pytest.mark.parametrize(
    ("cores", "chosen"),
    # 8 videos of 2 views, 3 at a time, are 6 batches.
    [(2, 2), (64, 6)],
)
def test_an_evaluation_alone_times_nothing(cores, chosen, tiny_data, tmp_path, monkeypatch):
    test = {"TEST.NUM_ENSEMBLE_VIEWS": 2, "TEST.NUM_SPATIAL_CROPS": 1, "TEST.BATCH_SIZE": 3}
    keys = {**data_keys(tiny_data), **test, "TRAIN.ENABLE": False}
    auto = tiny_config(tmp_path, {**keys, "DATA_LOADER.NUM_WORKERS": "auto"})
    monkeypatch.setattr(workers, "num_cores", lambda: cores)
    inputs = build_inputs(auto, [], 1)
    assert build_evaluation_workers(auto, inputs) == DataLoaderKeys(chosen, 2)
    number = tiny_config(tmp_path, {**keys, "DATA_LOADER.NUM_WORKERS": 3})
    assert build_evaluation_workers(number, inputs) == number.DATA_LOADER
