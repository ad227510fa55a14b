"""Augmentation of training clips: after all other draws, the same in any process; never of views."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fakes import FakeRequest, fake_frames, opener_of, training_clips_of
from tiny import data_keys, tiny_config

from mgexp.data.augment import Augment
from mgexp.data.clips import RelativeCrop, SquareCrop
from mgexp.data.lists import build_list
from mgexp.data.loader import build_training_clips, build_view_loader
from mgexp.data.records import VideoRecord
from mgexp.dist import Processes
from mgexp.video.pyav import PyavReader

GREY = (115, 115, 115)
AUGMENT = Augment(2, 9, 0.4, 0.5, GREY, full=(4, 32))
NOTHING = Augment(0, 9, 0.0, 0.0, GREY, full=(4, 32))
KEYS = {"AUG.RANDAUGMENT_OPS": 2, "AUG.COLOR_JITTER": 0.4, "AUG.RE_PROB": 1.0}


class RandomReader:
    """A video of 2 s, 40 x 48, of random pixels; all frames are alike."""

    duration_seconds = 2.0

    def frames_at(self, times_seconds, short_side, cut):
        rng = np.random.default_rng(0)
        frame = rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)
        return fake_frames(frame[None].repeat(len(times_seconds), axis=0), cut)


def training_clips(augment, broken=(), relative=None):
    records = [VideoRecord(f"{index}.mp4", index) for index in range(8)]
    opener = opener_of(RandomReader(), broken)
    how = {"jitter": (32, 40), "flip": True, "relative": relative, "augment": augment}
    return training_clips_of(records, opener, **how)


def frames_of(clips, num=20):
    return [clips[FakeRequest(seed=(3, position))].frames for position in range(num)]


def equal(one, other):
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def test_augmentation_changes_no_other_draw():
    assert equal(frames_of(training_clips(NOTHING)), frames_of(training_clips(None)))


def test_what_is_augmented_is_the_crop():
    given = []

    def look(frames, seed):
        given.append(frames)
        return torch.zeros_like(frames)

    shown = frames_of(training_clips(look))
    assert equal(given, frames_of(training_clips(None)))
    assert not any(frames.any() for frames in shown)


def test_coarse_clips_have_the_strength_of_their_shape():
    """2 of 8 frames at half the full crop: a sixteenth of the pixels, so 0 + 1/16 of the strengths."""
    by_shape = training_clips(replace(AUGMENT, full=(8, 64), coarse_strength=0.0))
    weak = training_clips(Augment(2, 1, 0.4 / 16, 0.5 / 16, GREY, full=(8, 64)))
    requests = [FakeRequest(seed=(3, n), frames=2, crop=32) for n in range(20)]
    assert equal([by_shape[r].frames for r in requests], [weak[r].frames for r in requests])


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({}, None),
        ({"AUG.RANDAUGMENT_OPS": 1}, Augment(1, 9, 0.0, 0.0, GREY, full=(8, 32))),
        (
            {"AUG.COLOR_JITTER": 0.4, "AUG.COARSE_STRENGTH": 0.5},
            Augment(0, 9, 0.4, 0.0, GREY, full=(8, 32), coarse_strength=0.5),
        ),
        (
            {"AUG.RE_PROB": 0.25, "DATA.MEAN": [0.0, 0.5, 1.0]},
            Augment(0, 9, 0.0, 0.25, (0, 128, 255), full=(8, 32)),
        ),
        (
            {"AUG.RANDAUGMENT_OPS": 3, "AUG.RANDAUGMENT_MAGNITUDE": 21},
            Augment(3, 21, 0.0, 0.0, GREY, full=(8, 32)),
        ),
    ],
    ids=str,
)
def test_keys_become_the_augmentation(keys, wanted, tmp_path):
    clips = build_training_clips(tiny_config(tmp_path, keys), [], PyavReader)
    assert clips.augment == wanted


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({}, SquareCrop((32, 40), 32)),
        (
            {"SCALES_RELATIVE": [0.08, 1.0], "ASPECT_RELATIVE": [0.75, 1.3333]},
            RelativeCrop((0.08, 1.0), (0.75, 1.3333), 40, 32),
        ),
    ],
)
def test_keys_become_crops(keys, wanted, tmp_path):
    cfg = tiny_config(tmp_path, {f"DATA.TRAIN_JITTER_{key}": value for key, value in keys.items()})
    assert build_training_clips(cfg, [], PyavReader).crops == wanted


@pytest.mark.parametrize("full_protocol", [False, True])
def test_views_of_evaluation_are_never_augmented(full_protocol, tiny_data, tmp_path):
    def views(**keys):
        cfg = tiny_config(tmp_path, {**data_keys(tiny_data), **keys})
        records = build_list(cfg, "VAL_LIST").records[:2]
        device, processes = torch.device("cpu"), Processes(0, 1)
        (batch,) = build_view_loader(cfg, records, full_protocol, device, processes, PyavReader)
        return batch.clips

    assert torch.equal(views(**KEYS), views())
