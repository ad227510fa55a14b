"""What augmentation does to the pixels of a clip: against numbers by hand and torchvision's functions."""

from itertools import permutations

import numpy as np
import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from mgexp.data.augment import Augment

ERASED = (200, 210, 220)
PARTS = {
    "randaugment": {"randaugment_ops": 2},
    "color_jitter": {"color_jitter": 0.4},
    "erasing": {"erasing_share": 1.0},
}
ALL = {"randaugment_ops": 2, "color_jitter": 0.4, "erasing_share": 0.5}


def augment(**changes):
    off = {"randaugment_ops": 0, "color_jitter": 0.0, "erasing_share": 0.0}
    plain = {"randaugment_magnitude": 9, "erased": ERASED, "full": (16, 64)}
    return Augment(**(off | plain | changes))


def random_clip(frames=4, crop=32):
    """Random pixels below 100: none of the erased colour."""
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.integers(0, 100, (frames, crop, crop, 3), dtype=np.uint8))


def changed(clip, seed=0, **parts):
    return augment(**parts)(clip, seed)


def only(operation, monkeypatch):
    """RandAugment draws this operation alone."""
    space = {operation: v2.RandAugment._AUGMENTATION_SPACE[operation]}
    monkeypatch.setattr(v2.RandAugment, "_AUGMENTATION_SPACE", space)


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_frames_that_are_alike_stay_alike(parts):
    clip = random_clip(frames=1).expand(4, -1, -1, -1)
    for seed in range(40):
        first, *others = changed(clip, seed, **parts)
        assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize(("frames", "crop"), [(1, 16), (4, 16), (2, 79), (8, 112)])
def test_every_shape_stays_what_it_is(frames, crop):
    clip = random_clip(frames, crop)
    for seed in range(15):
        out = changed(clip, seed, randaugment_ops=3, color_jitter=1.0, erasing_share=1.0)
        assert (out.shape, out.dtype, out.is_contiguous()) == (clip.shape, torch.uint8, True)


def test_the_given_clip_is_not_written_to():
    clip = random_clip()
    before = clip.clone()
    for seed in range(20):
        changed(clip, seed, **ALL)
    assert torch.equal(clip, before)


def test_the_seed_alone_decides():
    clip = random_clip()
    torch.manual_seed(1)
    first = [changed(clip, seed, **ALL) for seed in range(10)]
    torch.manual_seed(2)
    again = [changed(clip, seed, **ALL) for seed in reversed(range(10))]
    assert all(torch.equal(*pair) for pair in zip(first, reversed(again), strict=True))


def test_the_generator_of_torch_is_left_as_it_was():
    before = torch.get_rng_state()
    changed(random_clip(), **ALL)
    assert torch.equal(torch.get_rng_state(), before)


# Magnitude 9 of 30 by hand: 30 * 9 / 30 degrees, factors 1 ± 0.9 * 9 / 30, 8 − 4 * 9 / 30 = 6.8 bits.
@pytest.mark.parametrize(
    ("operation", "function", "arguments"),
    [
        ("Rotate", functional.rotate, (9.0, -9.0)),
        ("Brightness", functional.adjust_brightness, (1.27, 0.73)),
        ("Color", functional.adjust_saturation, (1.27, 0.73)),
        ("Posterize", functional.posterize, (7,)),
        ("Identity", lambda planes, _: planes, (None,)),
    ],
)
def test_randaugment_does_the_drawn_operation(operation, function, arguments, monkeypatch):
    only(operation, monkeypatch)
    clip = random_clip()
    planes = clip.permute(0, 3, 1, 2)
    wanted = [function(planes, argument).permute(0, 2, 3, 1) for argument in arguments]
    found = [changed(clip, seed, randaugment_ops=1) for seed in range(20)]
    nearest = [[int((out.int() - one.int()).abs().max()) for one in wanted] for out in found]
    assert all(min(row) <= 1 for row in nearest)  # factors are float32 there
    assert {row.index(min(row)) for row in nearest} == set(range(len(arguments)))


@pytest.mark.parametrize(("magnitude", "columns"), [(0, 0), (9, 8), (30, 29)])
@pytest.mark.parametrize("operations", [1, 2])
def test_as_many_operations_as_asked_for_of_the_magnitude(
    operations, magnitude, columns, monkeypatch
):
    """A white clip of 64 pixels moves by 64 * 150 / 331 * magnitude / 30, and shows black behind it."""
    only("TranslateX", monkeypatch)
    white = torch.full((2, 64, 64, 3), 255, dtype=torch.uint8)
    strength = {"randaugment_ops": operations, "randaugment_magnitude": magnitude}
    out = [changed(white, seed, **strength) for seed in range(10)]
    # The most black is where all operations move the same way.
    assert max((one == 0).all(dim=(0, 1, 3)).sum() for one in out) == columns * operations


def test_jitter_draws_each_factor_from_the_same_range(monkeypatch):
    """At the upper end of the ranges; the order of the three is drawn too."""
    ranges = []

    def upper(left, right):
        ranges.append((left, right))
        return right

    monkeypatch.setattr(v2.ColorJitter, "_generate_value", staticmethod(upper))
    clip = random_clip()
    out = changed(clip, color_jitter=0.4)
    assert ranges == [(0.6, 1.4)] * 3
    steps = functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation
    wanted = []
    for order in permutations(steps):
        planes = clip.permute(0, 3, 1, 2)
        for step in order:
            planes = step(planes, 1.4)
        wanted.append(planes.permute(0, 2, 3, 1))
    assert any(torch.equal(out, one) for one in wanted)


def test_erasing_paints_one_rectangle_in_all_frames():
    clip = random_clip(frames=3, crop=64)
    for seed in range(30):
        out = changed(clip, seed, erasing_share=1.0)
        painted = (out == torch.tensor(ERASED)).all(-1)
        rows, columns = painted[0].any(1), painted[0].any(0)
        assert torch.equal(painted, (rows[:, None] & columns).expand(3, -1, -1))
        assert torch.equal(out[~painted], clip[~painted])
        for side in (rows, columns):  # without a gap
            assert side.sum() == side.nonzero().max() - side.nonzero().min() + 1
        assert 0.015 < painted[0].float().mean() < 0.35  # 2 to 33 %, in whole pixels


def test_the_asked_share_of_clips_is_erased():
    clip = random_clip(frames=1, crop=16)
    erased = sum(
        not torch.equal(changed(clip, seed, erasing_share=0.25), clip) for seed in range(400)
    )
    assert 57 < erased < 143  # 100, five standard deviations


# t·s² / (16·64²) of (16, 64), (8, 64), (8, 45), (4, 45), (4, 32): 1, 1/2, 0.2472, 0.1236, 1/16.
@pytest.mark.parametrize(
    ("strength", "wanted"),
    [
        (1.0, (1, 1, 1, 1, 1)),
        (0.0, (1, 0.5, 0.2472, 0.1236, 0.0625)),
        (0.5, (1, 0.75, 0.6236, 0.5618, 0.53125)),
        (2.0, (1, 1.5, 1.7528, 1.8764, 1.9375)),
    ],
)
def test_strength_goes_with_the_pixels_of_a_clip(strength, wanted):
    shapes = (16, 64), (8, 64), (8, 45), (4, 45), (4, 32)
    found = [augment(coarse_strength=strength).factor(*shape) for shape in shapes]
    assert found == pytest.approx(wanted, abs=5e-5)
    assert found[0] == 1  # exactly


def test_every_strength_is_times_the_factor():
    """Half of the pixels at strength 0.5: 0.75 of 9 is 6.75."""
    clip, weaker = random_clip(frames=8, crop=64), {"randaugment_magnitude": 7}
    weaker |= {"color_jitter": 0.4 * 0.75, "erasing_share": 0.5 * 0.75}
    for seed in range(10):
        found = changed(clip, seed, **ALL, coarse_strength=0.5)
        assert torch.equal(found, changed(clip, seed, **ALL | weaker))
