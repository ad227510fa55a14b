"""Training clips draw what they drew before clip stores came: a table made by the code of that time."""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from fakes import FakeFrames

from mgexp.data import clips as module
from mgexp.data.clips import TrainingClips
from mgexp.data.records import VideoRecord
from mgexp.video.reader import Region

# (inverse uniform, stride range, seed, first and last time, region, flipped) of 8 frames at a crop of 112,
# from 10 s of 256 x 340 pixels, with short sides of 256 to 320 at a full crop of 224.
TABLE = [
    (False, (2, 8), (0, 0), (2.257215505, 3.890548838), (29, 9, 211, 211), False),
    (False, (2, 8), (7, 123456), (6.092107266, 7.0254406), (81, 157, 108, 108), True),
    (False, (2, 2), (0, 0), (6.072368086, 6.539034752), (30, 7, 159, 159), True),
    (False, (2, 2), (7, 123456), (5.229325809, 5.695992476), (70, 165, 112, 112), False),
    (False, None, (0, 0), (0.796202109, 9.661870701), (75, 203, 123, 123), False),
    (False, None, (7, 123456), (0.685663349, 9.091919931), (3, 205, 95, 95), True),
    (True, (2, 8), (0, 0), (2.257215505, 3.890548838), (103, 18, 95, 95), False),
    (True, (2, 8), (7, 123456), (6.092107266, 7.0254406), (38, 104, 186, 186), True),
    (True, (2, 2), (0, 0), (6.072368086, 6.539034752), (40, 8, 126, 126), True),
    (True, (2, 2), (7, 123456), (5.229325809, 5.695992476), (37, 116, 180, 180), False),
    (True, None, (0, 0), (0.796202109, 9.661870701), (52, 166, 163, 163), False),
    (True, None, (7, 123456), (0.685663349, 9.091919931), (1, 108, 211, 211), True),
]


@dataclass(frozen=True)
class Request:
    stride_range: tuple[int, int] | None
    seed: tuple[int, int]
    index: int = 0
    frames: int = 8
    crop: int = 112


class Recorder:
    """A video that notes which times are asked for."""

    duration_seconds = 10.0

    def __init__(self):
        self.times = ()

    def frames_at(self, times_seconds, short_side):
        self.times = (times_seconds[0], times_seconds[-1])
        self.frames = FakeFrames(np.zeros((len(times_seconds), 256, 340, 3), np.uint8))
        return self.frames


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_draws_are_what_they_were(row, monkeypatch):
    inverse_uniform, stride_range, seed, times, corner, flipped = row
    reader = Recorder()

    def resize(frames, crop):
        return torch.arange(crop).reshape(1, 1, crop, 1)

    @contextmanager
    def opener(path):
        yield reader

    monkeypatch.setattr(module, "resize", resize)
    clips = TrainingClips(
        [VideoRecord("a.mp4", 0)],
        target_fps=30,
        jitter=(256, 320),
        full_crop=224,
        inverse_uniform=inverse_uniform,
        flip=True,
        opener=opener,
    )
    clip = clips[Request(stride_range, seed)]
    assert reader.times == pytest.approx(times, abs=1e-8)
    assert reader.frames.region == Region(*corner)
    assert clip.flipped == flipped
