"""Squares of frames against tables written by hand, resizing against Pillow."""

from itertools import product

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from mgexp.data.clips import RelativeCrop, SquareCrop, finish
from mgexp.data.views import view_region
from mgexp.video.reader import Region


def random_frames(num_frames, height, width):
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (num_frames, height, width, 3), dtype=np.uint8)


def random_regions(num_draws, height, width, crop, short_sides, inverse_uniform=False):
    crops, rng = SquareCrop(short_sides, crop, inverse_uniform), np.random.default_rng(0)
    cuts = (crops.draw(crop, rng)[1] for _ in range(num_draws))
    return [cut((height, width)) for cut in cuts]


@pytest.mark.parametrize(
    ("crop", "short_side", "side"),
    [(224, 256, 224), (224, 320, 179), (158, 181, 223), (112, 128, 224), (112, 320, 90)],
)
def test_side_of_the_source_square_in_a_kinetics_frame(crop, short_side, side):
    (region,) = random_regions(1, 256, 340, crop, (short_side, short_side))
    assert (region.height, region.width) == (side, side)


def test_every_offset_is_drawn_equally_often_the_last_included():
    regions = random_regions(15_000, 4, 6, crop=2, short_sides=(4, 4))
    offsets, counts = np.unique(
        [(region.top, region.left) for region in regions], axis=0, return_counts=True
    )
    assert [tuple(offset) for offset in offsets.tolist()] == list(product(range(3), range(5)))
    assert np.all(abs(counts - 1000) < 155)  # five standard deviations


def test_the_short_side_is_uniform():
    regions = random_regions(4000, 20_000, 30_000, crop=100, short_sides=(100, 200))
    short_sides = 100 * 20_000 / np.array([region.height for region in regions])
    counts, _ = np.histogram(short_sides, bins=5, range=(100, 200))
    assert counts.sum() == 4000
    assert np.all(abs(counts - 800) < 127)


def test_the_inverse_of_the_short_side_is_uniform_where_asked():
    regions = random_regions(4000, 20_000, 30_000, 100, (100, 200), inverse_uniform=True)
    sides = np.array([region.height for region in regions])  # proportional to 1 / short side
    counts, _ = np.histogram(sides, bins=5, range=(10_000, 20_000))
    assert counts.sum() == 4000
    assert np.all(abs(counts - 800) < 127)


# A source of 256 x 340 and its copies: half as large, and 160 x 212 (0.625 and 0.6235 times).
@pytest.mark.parametrize(
    ("region", "copy_size", "expected"),
    [
        (Region(29, 9, 211, 211), (256, 340), Region(29, 9, 211, 211)),
        (Region(29, 9, 211, 211), (128, 170), Region(14, 4, 106, 106)),
        (Region(29, 9, 211, 211), (160, 212), Region(18, 6, 132, 131)),
        # The last row and column stay inside.
        (Region(45, 129, 211, 211), (64, 84), Region(11, 32, 53, 52)),
        # Row 250 of 256 is row 3.9 of 4. Less than a pixel is a pixel.
        (Region(250, 330, 3, 4), (4, 5), Region(3, 4, 1, 1)),
    ],
)
def test_a_region_shows_the_same_part_of_a_copy(region, copy_size, expected):
    assert region.on((256, 340), copy_size) == expected


def test_relative_crops_are_distributed_as_those_of_torchvision():
    """Deciles of area, aspect ratio and offset of 20,000 crops; a decile has a standard error of 0.4 %."""
    height, width, num = 256, 340, 20_000
    rng = np.random.default_rng(0)
    ours = [
        RelativeCrop((0.08, 1.0), (0.75, 1.3333), 320, 224).region((height, width), rng)
        for _ in range(num)
    ]
    torch.manual_seed(0)
    frame = torch.empty(3, height, width, dtype=torch.uint8)
    crop = v2.RandomResizedCrop(8, scale=(0.08, 1.0), ratio=(0.75, 1.3333))
    theirs = [crop.make_params([frame]) for _ in range(num)]

    def measures(top, left, tall, wide):
        return {
            "area": tall * wide / (height * width),
            "aspect": np.log(wide / tall),
            "top": top / np.maximum(1, height - tall),
            "left": left / np.maximum(1, width - wide),
        }

    one = measures(*np.array([(r.top, r.left, r.height, r.width) for r in ours]).T)
    names = ("top", "left", "height", "width")
    other = measures(*np.array([[found[name] for name in names] for found in theirs]).T)
    for name, values in one.items():
        shares = [
            np.mean(values <= edge) for edge in np.quantile(other[name], np.arange(0.1, 1, 0.1))
        ]
        assert shares == pytest.approx(np.arange(0.1, 1, 0.1), abs=0.025), name


@pytest.mark.parametrize(
    ("height", "width", "region"),
    [  # The whole frame is too wide, too tall, or right.
        (90, 300, Region(0, 90, 90, 120)),
        (300, 90, Region(90, 0, 120, 90)),
        (90, 100, Region(0, 0, 90, 100)),
    ],
)
def test_a_relative_crop_that_never_fits_is_the_largest_in_the_centre(height, width, region):
    """No crop of at least 3 times the frame's area fits, and torchvision then takes the same."""
    rng = np.random.default_rng(0)
    ours = RelativeCrop((3.0, 3.0), (0.75, 4 / 3), 320, 224).region((height, width), rng)
    frame = torch.empty(3, height, width, dtype=torch.uint8)
    theirs = v2.RandomResizedCrop(8, scale=(3.0, 3.0), ratio=(0.75, 4 / 3)).make_params([frame])
    assert ours == region == Region(*(theirs[name] for name in ("top", "left", "height", "width")))


@pytest.mark.parametrize(("aspects", "side"), [((0.75, 4 / 3), 370), ((0.5, 1.0), 453)])
def test_no_relative_crop_is_larger_than_the_square_that_memory_is_planned_for(aspects, side):
    """The largest crops of frames with a short side of 320 have 320 x 426.7 and 640 x 320 pixels."""
    crops, rng = RelativeCrop((0.08, 1.0), aspects, 320, 224), np.random.default_rng(0)
    assert crops.largest_side() == side
    for height, width in ((320, 320), (320, 427), (320, 569), (569, 320), (640, 320)):
        found = [crops.region((height, width), rng) for _ in range(1000)]
        assert max(one.height * one.width for one in found) <= side**2


@pytest.mark.parametrize("inverse_uniform", [False, True])
@pytest.mark.parametrize(("height", "width"), [(48, 85), (85, 48), (3, 3), (1, 7)])
def test_random_squares_lie_inside_the_frame(height, width, inverse_uniform):
    for region in random_regions(300, height, width, 49, (49, 300), inverse_uniform):
        assert region.height == region.width >= 1
        assert 0 <= region.top <= height - region.height
        assert 0 <= region.left <= width - region.width


@pytest.mark.parametrize(
    ("frame", "num", "regions"),
    [
        ((64, 80), 1, [Region(0, 8, 64, 64)]),
        ((64, 80), 3, [Region(0, left, 64, 64) for left in (0, 8, 16)]),
        ((80, 64), 3, [Region(top, 0, 64, 64) for top in (0, 8, 16)]),
        ((256, 341), 3, [Region(0, left, 256, 256) for left in (0, 42, 85)]),
        ((341, 256), 1, [Region(42, 0, 256, 256)]),
        ((64, 64), 3, [Region(0, 0, 64, 64)] * 3),
    ],
)
def test_squares_of_views(frame, num, regions):
    assert [view_region(*frame, index, num) for index in range(num)] == regions


def test_a_region_of_the_right_size_is_cut_and_not_resized():
    frames = random_frames(4, 64, 80)
    clip = finish(torch.from_numpy(frames)[:, 3:35, 5:37], 32)
    assert torch.equal(clip, torch.from_numpy(frames[:, 3:35, 5:37]))


@pytest.mark.parametrize("num_frames", [1, 4])
@pytest.mark.parametrize(("side", "crop"), [(60, 64), (50, 45), (64, 32), (64, 17), (1, 8), (9, 1)])
def test_resizing_agrees_with_pillow(num_frames, side, crop):
    frames = random_frames(num_frames, 64, 80)
    clip = finish(torch.from_numpy(frames)[:, :side, 7 : 7 + side], crop)
    for ours, source in zip(clip.numpy(), frames, strict=True):
        region = Image.fromarray(source[:side, 7 : 7 + side])
        theirs = np.asarray(region.resize((crop, crop), Image.Resampling.BILINEAR))
        assert abs(ours.astype(int) - theirs.astype(int)).max() <= 1  # rounding
