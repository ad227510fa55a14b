"""Batches of a loader from shards are those from single files, to the bit: all shapes, workers, and a resume."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from stores import pack_store
from tiny import NUM_TRAIN, data_keys, tiny_config

from mgexp.data.lists import build_list
from mgexp.data.loader import build_opener, build_train_loader
from mgexp.multigrid.sampler import StepSampler
from mgexp.train.setup import build_row_schedule
from mgexp.video.store import StoreDir
from mgexp.video.store_fill import Order, fill_store

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def stores(tiny_data, tmp_path_factory) -> dict[str, Path]:
    """The same copies as files and in shards, which earlier versions wrote."""
    folder = tmp_path_factory.mktemp("stores")
    asked = Order(tiny_data, (32, 24), quantizer=4)
    names = [f"train{number}.mp4" for number in range(NUM_TRAIN)]
    for name in ("files", "shards"):
        fill_store(StoreDir(folder / name), asked, names, 1, progress=False)
    pack_store(StoreDir(folder / "shards"))
    return {name: folder / name for name in ("files", "shards")}


def batches_of(folder, data, store, workers=0, first_step=0):
    """Yield the batches of a run, from ``first_step`` on."""
    keys = {**data_keys(data), "DATA.STORE": str(store), "DATA_LOADER.NUM_WORKERS": workers}
    cfg = tiny_config(folder, keys)
    sampler = StepSampler(build_row_schedule(cfg, NUM_TRAIN), 0, first_step, rank=0, repeats=1)
    records = build_list(cfg, "TRAIN_LIST").records
    yield from build_train_loader(cfg, records, sampler, CPU, build_opener(cfg))


@pytest.mark.parametrize(("workers", "first_step"), [(0, 0), (2, 0), (0, 5), (2, 5)])
def test_batches_are_equal_to_the_bit(tiny_data, stores, tmp_path, workers, first_step):
    """All shapes of the schedule; ``first_step`` 5 is a run that goes on in its middle."""
    whole = list(batches_of(tmp_path, tiny_data, stores["files"]))
    shapes = {batch.clips.shape[1:] for batch in whole}
    assert len(shapes) > 4
    found = list(batches_of(tmp_path, tiny_data, stores["shards"], workers, first_step))
    for one, other in zip(found, whole[first_step:], strict=True):
        assert torch.equal(one.clips, other.clips)
        assert torch.equal(one.labels, other.labels)
        assert one.levels == other.levels
        assert not one.unusable
    assert {level for batch in found for level in batch.levels} == {"32", "24"}


def test_a_damaged_shard_is_an_unusable_video_that_names_it(tiny_data, stores, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(stores["shards"], store)
    for shard in store.glob("*/000000.tar"):
        shard.write_bytes(shard.read_bytes()[:600])
    batch = next(batches_of(tmp_path, tiny_data, store))
    reasons = [reason for _, reason in batch.unusable]
    assert reasons
    assert all("000000.tar" in reason for reason in reasons)
