"""Clips that the device of training makes: the same bits on a CPU as those of a worker."""

import json
from functools import partial

import pytest
import torch
from fakes import FakeRequest
from run_files import losses
from test_augmented_clips import AUGMENT, training_clips
from tiny import command, data_keys, run_net, tiny_config, write_config
from torch.utils.data import DataLoader

from mgexp.data.batches import Batch, collate
from mgexp.data.loader import build_crops, build_train_loader
from mgexp.video.pyav import PyavReader

CPU = torch.device("cpu")
# Both larger and smaller than the regions, and of their size: the videos have 40 x 48 pixels.
REQUESTS = [
    [FakeRequest(seed=(3, position), frames=frames, crop=crop) for position in range(6)]
    for frames, crop in [(2, 16), (4, 32), (3, 32)]
]


def loaders(num_workers=0, augment=AUGMENT, broken=(), relative=None):
    """Loaders of the same clips: made by workers, and made by the device."""
    load = partial(DataLoader, batch_sampler=REQUESTS, num_workers=num_workers)
    theirs = training_clips(augment, broken, relative)
    ours = training_clips(augment, broken, relative)
    ours.finishes = False
    loader = load(ours, collate_fn=partial(collate, are_finished=False, augment=augment))
    return load(theirs, collate_fn=collate), (batch.on(CPU) for batch in loader)


@pytest.mark.parametrize("augment", [None, AUGMENT], ids=["plain", "augmented"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_device_makes_the_clips_of_a_worker(num_workers, augment):
    wanted, found = loaders(num_workers, augment)
    for one, other in zip(found, wanted, strict=True):
        assert all(map(torch.equal, one.tensors(), other.tensors()))
        assert one.unusable == other.unusable
        assert one.clips.is_contiguous(memory_format=torch.channels_last_3d)
        assert one.flipped.any()


def test_the_device_makes_clips_of_regions_that_are_no_squares():
    wanted, found = loaders(relative=((0.1, 0.9), (0.5, 2.0)))
    for one, other in zip(found, wanted, strict=True):
        assert all(map(torch.equal, one.tensors(), other.tensors()))


def test_what_failed_is_reported_with_the_clips():
    wanted, found = loaders(broken=("0.mp4",))
    reports = [batch.unusable for batch in found]
    assert reports == [batch.unusable for batch in wanted]
    assert any(reports)


def test_a_batch_without_clips_says_why():
    _, found = loaders(broken=[f"{index}.mp4" for index in range(8)])
    for batch in found:
        assert batch.clips.shape == (0, 3, 0, 0, 0)
        assert batch.unusable


def test_regions_are_pinned_with_their_labels(fake_gpu):
    clips = training_clips(AUGMENT)
    clips.finishes = False
    batch = collate([clips[request] for request in REQUESTS[0]], are_finished=False)
    fake_gpu.calls.clear()
    pinned = batch.pin_memory()
    assert fake_gpu.calls == ["pin_memory"] * 3  # pixels, labels, mirrored clips
    assert pinned.regions == batch.regions
    assert pinned.regions.crop == 16


def test_a_key_says_who_makes_the_clips(tmp_path):
    def loader(where):
        cfg = tiny_config(tmp_path, {"AUG.DEVICE": where, "AUG.COLOR_JITTER": 0.4})
        return build_train_loader(cfg, [], [], CPU, PyavReader)

    (workers, training) = (loader(where).collate_fn.keywords for where in ("workers", "training"))
    assert (workers["are_finished"], training["are_finished"]) == (True, False)
    assert training["augment"] is not None


def test_memory_is_planned_for_the_largest_region(tmp_path):
    """Crops of 32 of a short side of 32 or more, from 256 pixels; relative ones from 40 x 53.3 pixels."""
    assert build_crops(tiny_config(tmp_path).DATA).largest_side() == 256
    keys = {
        "DATA.TRAIN_JITTER_SCALES_RELATIVE": [0.08, 1.0],
        "DATA.TRAIN_JITTER_ASPECT_RELATIVE": [0.75, 1.3333],
    }
    assert build_crops(tiny_config(tmp_path, keys).DATA).largest_side() == 47


@pytest.mark.slow
def test_a_run_trains_alike_wherever_its_clips_are_made(tiny_data, tmp_path):
    keys = {**data_keys(tiny_data), "AUG.COLOR_JITTER": 0.4, "AUG.RANDAUGMENT_OPS": 1}
    cfg = write_config(tmp_path / "tiny.yaml", keys)
    for where in ("workers", "training"):
        pairs = ("AUG.DEVICE", where, "DATA_LOADER.NUM_WORKERS", 1)
        assert run_net().main(command(cfg, tmp_path / where, *pairs)) == 0
    assert losses(tmp_path / "training") == losses(tmp_path / "workers")
    assert metrics_of(tmp_path / "training") == metrics_of(tmp_path / "workers")


def metrics_of(run):
    return json.loads((run / "result.json").read_text())["metrics"]


def test_a_finished_batch_is_left_alone():
    batch = Batch(torch.empty(0, 3, 0, 0, 0), torch.empty(0), ((1, "gone"),))
    there = batch.on(CPU)
    assert all(map(torch.equal, there.tensors(), batch.tensors()))
    assert (there.unusable, there.regions) == (batch.unusable, None)
