"""What the quickstart videos show, measured on their pixels: the motions, and that the sets stay as they are."""

from dataclasses import replace

import numpy as np
import pytest
import quickstart_scenes as scenes
from quickstart_scenes import SETS, QuickstartOptions, draw_video

OPTIONS = QuickstartOptions()
PLAIN = replace(
    OPTIONS,
    stripe_luma=(0.0, 0.0),
    plaid_luma=(0.0, 0.0),
    sway=0.0,
    hidden_share=0.0,
    object_luma=(90.0, 90.0),
    edge_pixels=1.0,
    clutter_shapes=(0, 0),
    drift_pixels=0.0,
    noise_luma=0.0,
)
"""A bright, sharp object without texture on a smooth background, with no motion but that of its class."""


def luma_of(class_name, index, monkeypatch):
    """Luma of a plain video as if its class were this one: (T, H, W)."""
    label = PLAIN.class_names.index(class_name)
    monkeypatch.setattr(scenes, "draw_label", lambda *_: label)
    return draw_video(PLAIN, "train", index)[:, : PLAIN.height_pixels].astype(float)


def measure(frame):
    """Area, and x and y of the middle, of the brightest part of a frame."""
    y, x = np.nonzero(frame > frame.max() - 20)
    return np.array([len(x), x.mean(), y.mean()])


def changes(class_name, index, monkeypatch):
    """Area ratio, and pixels to the right and down, from the first frame to the last."""
    frames = luma_of(class_name, index, monkeypatch)
    (area, x, y), (last_area, last_x, last_y) = measure(frames[0]), measure(frames[-1])
    return last_area / area, last_x - x, last_y - y


INDICES = pytest.mark.parametrize("index", [0, 5])


@INDICES
@pytest.mark.parametrize(
    ("name", "axis", "sign", "asked_for"),
    [
        ("fall", "y", 1, PLAIN.fall_pixels),
        ("rise", "y", -1, PLAIN.fall_pixels),
        ("slide_right", "x", 1, PLAIN.slide_pixels),
        ("slide_left", "x", -1, PLAIN.slide_pixels),
    ],
)
def test_an_object_moves_by_the_pixels_asked_for(name, axis, sign, asked_for, index, monkeypatch):
    _, right, down = changes(f"{name}_vertical", index, monkeypatch)
    way = {"x": right, "y": down}[axis]
    assert asked_for[0] - 3 < sign * way < asked_for[1] + 3


@INDICES
@pytest.mark.parametrize(("name", "sign"), [("approach", 1), ("recede", -1)])
def test_an_object_grows_by_the_ratio_asked_for(name, sign, index, monkeypatch):
    least, largest = PLAIN.zoom_ratio
    ratio, _, _ = changes(f"{name}_vertical", index, monkeypatch)
    assert 0.85 * least < ratio ** (sign / 2) < 1.15 * largest


@pytest.mark.parametrize("label", [0, 5, 8])
def test_the_second_motion_of_a_pair_is_the_first_backwards(label, monkeypatch):
    """Noise included: a set of frames without their order is the same for both."""
    videos = []
    for of_pair in (label, label + 2):
        monkeypatch.setattr(scenes, "draw_label", lambda *_, found=of_pair: found)
        videos.append(draw_video(OPTIONS, "train", 7))
    assert not np.array_equal(videos[0], videos[1])
    assert np.array_equal(videos[0], videos[1][::-1])


@pytest.mark.parametrize(
    ("number", "sums"),
    [
        # In video 56 the object is hidden.
        (1, {0: (16849349, 13140417), 7: (22470857, 13418010), 56: (13168352, 13624158)}),
        (2, {0: (16334873, 13138748), 7: (22328663, 13315077), 101: (19950322, 13034461)}),
        (3, {0: (9768768, 7511905), 7: (13977869, 6348013), 101: (13776594, 8491746)}),
        (4, {0: (9456776, 7452775), 7: (14458430, 7459636), 101: (13791705, 7335675)}),
    ],
)
def test_a_set_keeps_its_pixels(number, sums):
    """Sums of luma and chroma of some videos, computed with the code that made the sets."""
    height = SETS[number].height_pixels
    for index, pair in sums.items():
        video = draw_video(SETS[number], "val", index).astype(int)
        found = (video[:, :height].sum(), video[:, height:].sum())
        # Another version of NumPy may round a value of set 1 to the other side.
        assert found == pytest.approx(pair, rel=1e-6), index
