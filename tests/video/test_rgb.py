"""Only what is wanted of a picture becomes RGB."""

import av
import numpy as np
import pytest
from av.video.reformatter import VideoReformatter
from videos import LONG_GOP, write_video

from mgexp.video import rgb as decode_rgb
from mgexp.video.pyav import PyavReader
from mgexp.video.reader import Region


@pytest.fixture
def converted(monkeypatch):
    """(height, width) of the frames that are given to the scaler."""
    sizes = []

    class Spy:
        def __init__(self):
            self.scaler = VideoReformatter()

        def reformat(self, frame, **options):
            sizes.append((frame.height, frame.width))
            return self.scaler.reformat(frame, **options)

    monkeypatch.setattr(decode_rgb, "VideoReformatter", Spy)
    return sizes


def test_a_region_is_cut_first_at_even_pixels(tmp_path, converted, monkeypatch):
    monkeypatch.setattr(decode_rgb, "LEAST_CUT", 0)
    path = write_video(tmp_path / "a.mp4", options=LONG_GOP)
    with PyavReader(str(path)) as reader:
        reader.frames_at([0.0, 0.5], cut=lambda size: Region(5, 7, 20, 10))
    assert converted == [(22, 12), (22, 12)]


@pytest.mark.parametrize(
    "region", [Region(5, 7, 20, 10), Region(0, 1, 47, 63), Region(47, 0, 1, 1)]
)
def test_the_pixels_of_a_cut_are_those_of_the_whole_picture(region, monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    frame = av.VideoFrame.from_ndarray(noise, format="rgb24").reformat(format="yuv420p")
    whole = decode_rgb.RgbConverter()(frame, Region(0, 0, 48, 64))[region.rows, region.columns]
    monkeypatch.setattr(decode_rgb, "LEAST_CUT", 0)
    np.testing.assert_array_equal(decode_rgb.RgbConverter()(frame, region), whole)


def test_a_small_picture_is_not_cut(tmp_path, converted):
    path = write_video(tmp_path / "a.mp4", options=LONG_GOP)
    with PyavReader(str(path)) as reader:
        reader.frames_at([0.0], cut=lambda size: Region(5, 7, 20, 10))
    assert converted == [(48, 64)]


def test_an_interlaced_picture_is_not_cut(tmp_path, converted, monkeypatch):
    monkeypatch.setattr(decode_rgb, "LEAST_CUT", 0)
    path = write_video(tmp_path / "a.mp4", options={"x264-params": "tff=1"})
    with PyavReader(str(path)) as reader:
        reader.frames_at([0.0], cut=lambda size: Region(5, 7, 20, 10))
    assert converted == [(48, 64)]
