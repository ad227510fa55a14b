"""What the quickstart videos show, measured on their pixels: motions, textures, and what must not show."""

import io
from dataclasses import replace

import av
import numpy as np
import pytest
import quickstart_scenes as scenes
import torch
from quickstart_scenes import (
    FALL,
    SETS,
    SLIDE,
    ZOOM,
    QuickstartOptions,
    draw_label,
    draw_pose,
    draw_video,
)
from quickstart_videos import encode_video
from torchvision.transforms.v2 import functional

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


THIRD = replace(
    SETS[3], plaid_luma=(0.0, 0.0), stripe_luma=(30.0, 30.0), noise_luma=0.0, object_luma=(0.0, 0.0)
)
"""Bright stripes alone, at the size of set 3."""


def luma_of(class_name, index, monkeypatch, options=PLAIN):
    """Luma of a video as if its class were this one: (T, H, W)."""
    label = options.class_names.index(class_name)
    monkeypatch.setattr(scenes, "draw_label", lambda *_: label)
    return draw_video(options, "train", index)[:, : options.height_pixels].astype(float)


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


def poses_at_random_times(family, num):
    """x, y and log length of the object in one random frame of each of ``num`` videos."""
    rng = np.random.default_rng(family)
    drift = np.zeros((40, 2), np.float32)
    rows = []
    for _ in range(num):
        pose, frame = draw_pose(OPTIONS, family, drift, rng), rng.integers(40)
        rows.append([value[frame, 0, 0] for value in (pose.x, pose.y, np.log(pose.length))])
    return np.array(rows).T


def largest_gap(a, b):
    """Kolmogorov's distance between two samples: 0 alike, 1 apart."""
    values = np.concatenate([a, b])
    shares = [np.searchsorted(np.sort(sample), values, "right") / len(sample) for sample in (a, b)]
    return np.abs(shares[0] - shares[1]).max()


def test_one_frame_looks_alike_in_all_motions():
    """Place and size; 0.08 is what two samples of 1000 from one distribution exceed once in 300."""
    samples = [poses_at_random_times(family, 1000) for family in (FALL, ZOOM, SLIDE)]
    gaps = [
        largest_gap(samples[0][value], samples[family][value])
        for value in range(3)
        for family in (ZOOM, SLIDE)
    ]
    assert max(gaps) < 0.08


def decoded(index):
    """RGB frames of a video after H.264: (T, 3, 64, 80)."""
    file = io.BytesIO(encode_video(draw_video(OPTIONS, "val", index), OPTIONS.quantizer))
    with av.open(file) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return torch.from_numpy(np.stack(frames[::8])).permute(0, 3, 1, 2)


def texture_score(frames):
    """Above 0 if brightness changes more from row to row than from column to column."""
    luma = frames.float().mean(1)
    down, right = luma.diff(dim=1).square().mean(), luma.diff(dim=2).square().mean()
    return float(torch.log(down / right))


@pytest.fixture(scope="module")
def videos():
    """Label and frames of some videos."""
    return [(draw_label(OPTIONS, "val", index), decoded(index)) for index in range(48)]


def separation(videos, short_side):
    """Chance that a horizontal texture scores above a vertical one: 1 always, 0.5 if nothing shows."""
    size = [short_side, short_side * 80 // 64]
    scores = {"horizontal": [], "vertical": []}
    for label, frames in videos:
        resized = functional.resize(frames, size, antialias=True)
        scores[OPTIONS.class_names[label].split("_")[-1]].append(texture_score(resized))
    above = np.array(scores["horizontal"])[:, None] > np.array(scores["vertical"])
    return above.mean()


def test_textures_show_at_64_pixels(videos):
    assert separation(videos, 64) > 0.95


def test_textures_do_not_show_at_32_pixels(videos):
    assert separation(videos, 32) < 0.65


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


def test_coarse_clips_keep_the_stripes_of_set_3_and_lose_those_of_set_4(monkeypatch):
    """Share of the change between rows that stripes cause and that a resize from 48 to 34 pixels keeps."""
    kept = {}
    for number in (3, 4):
        options = replace(THIRD, stripe_period_pixels=SETS[number].stripe_period_pixels)
        blank = replace(options, stripe_luma=(0.0, 0.0))
        stripes = [
            luma_of("fall_horizontal", i, monkeypatch, options)
            - luma_of("fall_horizontal", i, monkeypatch, blank)
            for i in range(8)
        ]
        kept[number] = np.mean(
            [
                functional.resize(torch.from_numpy(one[:1]), [34, 42]).std() / one[:1].std()
                for one in stripes
            ]
        )
    assert kept[3] > 0.7
    assert kept[4] < 0.3
