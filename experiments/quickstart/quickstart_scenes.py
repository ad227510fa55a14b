"""Draw the quickstart videos: one object moves over a still, cluttered background, behind fine stripes.

The class of a video is motion × texture. A network needs several frames for the motion, and fine pixels for the
texture:

- Motions are pairs. The second motion of a pair is the first one in reverse order, so frames without their
  order do not show which of the two it is. The object also moves a little in the ways of the other classes, around
  a random point of their paths. So one frame looks alike in all classes.
- The texture is fine stripes, horizontal or vertical. They cover the whole screen and do not move. There are also
  coarser stripes of random strength in both directions. A resize to a short side of 45 pixels turns the fine
  stripes into a weak alias, which looks like the coarse stripes.

All draws follow from (seed, split, index). There are T = 40 frames. Planes are (H, W) = (64, 80).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mgexp.errors import InputError

Array = NDArray[np.float32]
Shape = Callable[[Array, Array], Array]
"""A function from coordinates (u, v), along and across the shape, to signed distances. The unit of all is half the
length of the shape."""


def draw_shape(rng: np.random.Generator) -> Shape:
    """Draw a kind of shape and its width.

    A shape is a signed distance: below 0 inside, above 0 outside. All shapes are longer than they are wide. So
    each motion looks different at another angle of the shape.
    """
    width = rng.uniform(0.32, 0.5)
    kinds = (_bar, _ellipse, _triangle, _ell, _key)
    kind = kinds[int(rng.integers(len(kinds)))]
    return lambda u, v: kind(u, v, width)


def _box(u: Array, v: Array, half_length: float, half_width: float) -> Array:
    distance: Array = np.maximum(np.abs(u) - half_length, np.abs(v) - half_width)
    return distance


def _bar(u: Array, v: Array, width: float) -> Array:
    return _box(u, v, 1.0, width)


def _ellipse(u: Array, v: Array, width: float) -> Array:
    # This distance is exact on the edge at the ends and at the sides. Elsewhere its error does not matter, because
    # the edge is soft.
    radius: Array = np.hypot(u, v / width)
    return (radius - 1) * width


def _triangle(u: Array, v: Array, width: float) -> Array:
    # The tip is at u = 1. The base is at u = -0.8, and is 2.8 times as long as `width`.
    slope = 1.4 * width / 1.8
    sides = (np.abs(v) + slope * (u - 1)) / math.hypot(1, slope)
    distance: Array = np.maximum(sides, -u - 0.8)
    return distance


def _ell(u: Array, v: Array, width: float) -> Array:
    stem = _box(u, v + 0.35, 1.0, 0.6 * width)
    foot = _box(u - (1 - 0.6 * width), v - 0.15, 0.6 * width, 0.65)
    distance: Array = np.minimum(stem, foot)
    return distance


def _key(u: Array, v: Array, width: float) -> Array:
    head = np.hypot(u - 0.45, v) - 0.55
    distance: Array = np.minimum(head, _box(u + 0.4, v, 0.6, 0.5 * width))
    return distance


NUM_FRAMES = 40
FRAME_RATE = 30
"""Frames per second."""

SPLITS = ("train", "val")

MOTIONS = (
    ("fall", "rise"),
    ("approach", "recede"),
    ("slide_right", "slide_left"),
)
"""Pairs of motions. A video of the second motion is a video of the first one with its frames in reverse order."""

TEXTURES = {"horizontal": 90, "vertical": 0, "rising": 45, "falling": 135}
"""The degrees by which each direction of stripes is turned from vertical ones."""

MOTION_NAMES = tuple(name for pair in MOTIONS for name in pair)
"""The name of each motion. The motion of a label is the label divided by the number of textures, rounded down."""

Range = tuple[float, float]
"""The range from which each video draws a value uniformly."""


@dataclass(frozen=True)
class QuickstartOptions:
    """All values on which the pixels of the set depend. Lengths are pixels of the 80 × 64 video.

    Brightness is H.264 luma, 16 (black) to 235 (white). The ranges are assumptions. They are wide, so that some
    videos are easy and others show their class only to a network that has learned well. They were chosen on the
    accuracy of the baseline alone: see prose.md beside this file. Raises InputError for values that no video can
    have.
    """

    num_train: int = 1500
    """The number of training videos."""

    num_val: int = 3000
    """The number of validation videos."""

    seed: int = 0
    """The seed of all draws, which is not negative."""

    height_pixels: int = 64
    width_pixels: int = 80

    textures: tuple[str, ...] = ("horizontal", "vertical")
    """The directions of stripes that the classes have."""

    octaves: bool = False
    """Draw periods and sizes evenly over octaves, as natural pictures have them, and not over pixels."""

    stripe_period_pixels: Range = (2.2, 2.45)
    """The period of the fine stripes. A resize of the short side from 64 to 45 cannot keep stripes with a period
    below 64/45 × 2 = 2.84. It leaves a weak alias, with a fifth of the amplitude, because bilinear antialiasing
    is not a sharp filter."""

    stripe_luma: Range = (2.0, 30.0)
    """The amplitude of the fine stripes, down to hardly visible. Their direction is a part of the class."""

    plaid_period_pixels: Range = (3.3, 4.1)
    """The period of the coarse stripes, which only disturb. After a resize to 45, the alias of the fine stripes
    has these periods (2.2 to 2.45 look like 3.4 to 4.0). So the alias says less about the class."""

    plaid_luma: Range = (0.0, 10.0)
    """The amplitude of the coarse stripes. The horizontal and the vertical ones have separate draws."""

    fall_pixels: Range = (22.0, 38.0)
    """The distance that an object falls or rises in a video."""

    zoom_ratio: Range = (1.9, 3.2)
    """The largest size of the object in a video, divided by its smallest size."""

    slide_pixels: Range = (26.0, 46.0)
    """The distance that an object slides to the right or left in a video."""

    sway: float = 0.05
    """The object also moves in the ways of the other classes, in either direction, by up to this share of their
    ranges. With 0 it does not. Below 1, the motion of the class is the largest."""

    unevenness: float = 0.15
    """The speed varies within a video by up to this share of its mean. Below 1, the object never turns back."""

    size_pixels: Range = (12.0, 20.0)
    """Half the length of the object at the middle of its zoom."""

    edge_pixels: float = 8.0
    """The width of the soft edges of the object and of the clutter. If an object moves less than the width of its
    edge between two frames, a network of few steps can see the direction. With edges of 1 pixel, long+short got
    2.2 points less (measured on the first set, seed 0, all else equal)."""

    place_pixels: float = 4.0
    """The largest distance in x and in y from the middle of the frame to the middle of the object's path."""

    tint_chroma: Range = (0.0, 0.0)
    """How far the colour of the background is from grey. Each texture has a direction of its own, from which each
    video differs by up to 54 degrees. So the colour says a part of the class, in clips of every shape."""

    background_luma: Range = (50.0, 110.0)
    """The mean luma of the background."""

    scene_luma: float = 0.0
    """How much brighter backgrounds are from one pair of motions to the next. So the scene hints at the motion."""

    object_luma: Range = (4.0, 90.0)
    """The difference between the object and the mean of the background. The object is always brighter. Then a
    network of four 3D convolutions recognised 83 % of the motions after 12 epochs of 1,200 videos. It recognised
    26 % when objects were brighter or darker (measured on paler, more cluttered videos, with objects that turned
    instead of falling)."""

    hidden_share: float = 0.0
    """The share of the videos in which the object is invisible, so nobody can see the motion. Only the first set
    has such videos: they lower the best possible accuracy, and say nothing about what a network has learned."""

    hidden_frames: float = 0.0
    """The chance of each frame that the object is hidden in it, as by something that passes in front. Clips of few
    frames lose more by that: a motion shows in two frames or more."""

    clutter_shapes: tuple[int, int] = (0, 4)
    """The smallest and the largest number of shapes in the background, both included."""

    drift_pixels: float = 1.0
    """The largest distance that the camera moves in a video, in any direction."""

    noise_luma: float = 3.0
    """The standard deviation of the sensor noise, which is drawn for each pixel of each frame."""

    quantizer: int = 28
    """The QP of H.264, the same for every frame. 0 is lossless, and 51 is the coarsest."""

    def __post_init__(self) -> None:
        problems = [*self._problems()]
        if problems:
            raise InputError(problems)

    def _problems(self) -> list[str]:
        counts = {"num_train": self.num_train, "num_val": self.num_val}
        problems = [
            f"quickstart {name} is {value}: a split needs at least 1 video"
            for name, value in counts.items()
            if value < 1
        ]
        if self.seed < 0:
            problems.append(f"quickstart seed is {self.seed}: use 0 or more")
        problems += [
            f"quickstart {name} is {share}: use at least 0 and less than 1"
            for name, share in self._shares().items()
            if not 0 <= share < 1
        ]
        if self.edge_pixels <= 0:
            problems.append(f"quickstart edge_pixels is {self.edge_pixels}: use more than 0")
        problems += [
            f"quickstart {name} is {value}: give the least first"
            for name, value in asdict(self).items()
            if isinstance(value, tuple) and name != "textures" and value[0] > value[1]
        ]
        return problems

    def _shares(self) -> dict[str, float]:
        names = ("sway", "unevenness", "hidden_share", "hidden_frames")
        return {name: getattr(self, name) for name in names}

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name of each label."""
        return tuple(f"{name}_{texture}" for name in MOTION_NAMES for texture in self.textures)

    def num_videos(self, split: str) -> int:
        """Return the number of videos of "train" or "val"."""
        return {"train": self.num_train, "val": self.num_val}[split]


THIRD_SET = QuickstartOptions(
    num_train=3000,
    height_pixels=48,
    width_pixels=60,
    textures=tuple(TEXTURES),
    octaves=True,
    stripe_period_pixels=(5.2, 20.8),
    plaid_period_pixels=(5.2, 20.8),
    stripe_luma=(1.0, 22.0),
    plaid_luma=(0.0, 12.0),
    background_luma=(60.0, 100.0),
    scene_luma=25.0,
    object_luma=(65.0, 125.0),
    hidden_frames=0.05,
    tint_chroma=(25.0, 65.0),
    fall_pixels=(16.0, 28.0),
    slide_pixels=(20.0, 34.0),
    size_pixels=(7.0, 16.0),
    edge_pixels=6.0,
    place_pixels=3.0,
)

SETS = {
    1: QuickstartOptions(
        num_train=1200,
        num_val=1200,
        stripe_luma=(20.0, 30.0),
        fall_pixels=(28.0, 38.0),
        zoom_ratio=(2.4, 3.2),
        slide_pixels=(34.0, 46.0),
        size_pixels=(14.0, 20.0),
        object_luma=(65.0, 90.0),
        hidden_share=0.015,
        clutter_shapes=(0, 3),
        noise_luma=2.5,
    ),
    2: QuickstartOptions(),
    3: THIRD_SET,
    4: replace(
        THIRD_SET,
        stripe_period_pixels=(2.2, 2.45),
        plaid_period_pixels=(3.3, 4.1),
        stripe_luma=(2.0, 46.0),
        plaid_luma=(0.0, 9.0),
        tint_chroma=(0.0, 0.0),
    ),
}
"""The options of each set by its number.

Set 1 is that of earlier versions, on which the baseline has 98 %. In set 2, coarse clips hide a part of the class.
In set 3 they show nearly all: experiments/length/prose.md. Set 4 is set 3 without colour, and with stripes that
coarse clips hide.
"""


def draw_label(options: QuickstartOptions, split: str, index: int) -> int:
    """Return the class of a video. The first n videos of n classes have all classes in a random order, and so on.

    So the classes are balanced. In any evenly spaced part of a list, they are nearly balanced.
    """
    num_classes = len(options.class_names)
    block, place = divmod(index, num_classes)
    rng = np.random.default_rng((options.seed, SPLITS.index(split), block))
    return int(rng.permutation(num_classes)[place])


FALL, ZOOM, SLIDE = range(len(MOTIONS))
NEUTRAL_CHROMA = 128
COLOUR_CHROMA = 45
"""The largest difference from neutral in the chroma of the object and of the clutter."""
PIXELS_PER_VALUE = (1, 2, 2)
"""Rows, and columns, of pixels for each value of the luma plane and of the two chroma planes, as in 4:2:0."""


@dataclass(frozen=True)
class Pose:
    """The place of an object: ``x`` and ``y`` of its middle and half its ``length`` in pixels, and its ``angle``.

    The angle is in radians, clockwise on the screen. The arrays have the shape (T, 1, 1), or (1, 1, 1) for a value
    that does not change.
    """

    x: Array
    y: Array
    angle: Array
    length: Array


def draw_video(options: QuickstartOptions, split: str, index: int) -> NDArray[np.uint8]:
    """Draw the frames of one video: (T, 1.5·H, W), planar YUV 4:2:0 as PyAV takes it, luma above chroma."""
    # A seed of four numbers makes these draws independent of the draws of the labels, whose seed has three.
    rng = np.random.default_rng((options.seed, SPLITS.index(split), index, 1))
    motion, texture = divmod(draw_label(options, split, index), len(options.textures))
    family, backwards = divmod(motion, 2)
    frames = _draw_forwards(options, family, options.textures[texture], rng)
    return frames[::-1] if backwards else frames


def _draw_forwards(
    options: QuickstartOptions, family: int, texture: str, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Draw a video of the first motion of a pair."""
    drift = _draw_drift(options.drift_pixels, rng)
    margin = int(np.ceil(options.drift_pixels / 2)) + 1
    backgrounds = _draw_backgrounds(options, family, margin, rng)
    # Without a tint there is no draw, so the videos of earlier sets stay the same.
    if any(options.tint_chroma):
        backgrounds[1:] += _draw_tint(options, texture, rng)[:, None, None]
    pose = draw_pose(options, family, drift, rng)
    size = (options.width_pixels, options.height_pixels)
    mask = _mask(draw_shape(rng), pose, *size, options.edge_pixels)
    # A hidden object is drawn too, with a mask of 0. So all later draws are the same with any share.
    mask *= np.float32(rng.random() >= options.hidden_share)
    # Without hidden frames there is no draw, so the videos of earlier sets stay the same.
    if options.hidden_frames:
        mask *= rng.random((NUM_FRAMES, 1, 1)) >= options.hidden_frames
    luma = float(backgrounds[0].mean()) + rng.uniform(*options.object_luma)
    colours = (luma, *_draw_chroma(rng))

    planes = []
    for background, colour, every in zip(backgrounds, colours, PIXELS_PER_VALUE, strict=True):
        view = _moving_view(background, drift, margin, every, size)
        planes.append(view + mask[:, ::every, ::every] * (colour - view))
    luma_plane = planes[0]
    luma_plane += _draw_stripes(options, texture, rng)
    luma_plane += options.noise_luma * rng.standard_normal(luma_plane.shape, dtype=np.float32)
    video = np.concatenate([plane.reshape(NUM_FRAMES, -1) for plane in planes], axis=1)
    # The levels of a video are 16 to 235. Chroma has other limits, but never comes near them.
    levels: NDArray[np.uint8] = np.clip(np.rint(video), 16, 235).astype(np.uint8)
    return levels.reshape(NUM_FRAMES, -1, options.width_pixels)


def _draw_drift(drift_pixels: float, rng: np.random.Generator) -> Array:
    """Draw how far the scene has moved in the camera's view, for each frame: (T, 2), x and y, with mean 0."""
    angle, distance = rng.uniform(0, 2 * np.pi), rng.uniform(0, drift_pixels)
    step = distance * np.array([np.cos(angle), np.sin(angle)])
    return np.outer(_times(), step).astype(np.float32)


def _times() -> NDArray[np.float64]:
    """Return the time of each frame, from -0.5 to 0.5, so that the reverse order only changes the sign."""
    return np.linspace(-0.5, 0.5, NUM_FRAMES)


def draw_pose(
    options: QuickstartOptions, family: int, drift: Array, rng: np.random.Generator
) -> Pose:
    """Draw the path of an object that falls, grows, or slides to the right. Its angle is random."""
    ranges = (options.fall_pixels, options.zoom_ratio, options.slide_pixels)
    amounts = [rng.uniform(*amount) for amount in ranges]
    path = [_draw_path(options, kind == family, rng) for kind in range(len(MOTIONS))]
    place = rng.uniform(-options.place_pixels, options.place_pixels, 2)
    turn = rng.uniform(0, 2 * np.pi)
    size = _draw_size(options, options.size_pixels, rng)
    return Pose(
        x=_column(options.width_pixels / 2 + place[0] + amounts[SLIDE] * path[SLIDE] + drift[:, 0]),
        y=_column(options.height_pixels / 2 + place[1] + amounts[FALL] * path[FALL] + drift[:, 1]),
        angle=_column(np.array([turn])),
        length=_column(size * amounts[ZOOM] ** path[ZOOM]),
    )


def _draw_path(
    options: QuickstartOptions, is_class: bool, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw the place of one motion on its path, from -0.5 to 0.5, in each frame: (T,).

    The motion of the class takes the whole path. Any other motion stays near a random point of its path.
    """
    times = _times()
    speed_swing = rng.uniform(-options.unevenness, options.unevenness)
    progress = times + speed_swing * np.sin(2 * np.pi * times) / (2 * np.pi)
    if is_class:
        return progress
    return rng.uniform(-0.5, 0.5) + progress * rng.uniform(-options.sway, options.sway)


def _column(values: NDArray[np.floating]) -> Array:
    return values.astype(np.float32).reshape(-1, 1, 1)


def _mask(shape: Shape, pose: Pose, width: int, height: int, edge: float) -> Array:
    """Compute the share of each pixel that the shape covers: (T, height, width). Its edge has ``edge`` pixels."""
    cos, sin = np.cos(pose.angle) / pose.length, np.sin(pose.angle) / pose.length
    x = np.arange(width, dtype=np.float32) - pose.x
    y = np.arange(height, dtype=np.float32)[:, None] - pose.y
    distance = shape(cos * x + sin * y, cos * y - sin * x)
    mask: Array = np.clip(0.5 - distance * pose.length / edge, 0, 1)
    return mask


def _draw_size(options: QuickstartOptions, pixels: Range, rng: np.random.Generator) -> float:
    """Draw a period or a size from a range, evenly over pixels or over octaves."""
    if not options.octaves:
        return float(rng.uniform(*pixels))
    return float(np.exp(rng.uniform(*np.log(pixels))))


def _draw_stripes(options: QuickstartOptions, texture: str, rng: np.random.Generator) -> Array:
    """Draw the luma of the stripes of the class, and of stripes in two directions that only disturb: (H, W)."""
    x = np.arange(options.width_pixels)
    y = np.arange(options.height_pixels)[:, None]
    turn = np.deg2rad(TEXTURES[texture])
    # Only one of the two terms is not 0 for stripes along the picture.
    along = {"horizontal": y, "vertical": x}.get(texture, x * np.cos(turn) + y * np.sin(turn))
    fine = _draw_wave(options, options.stripe_period_pixels, options.stripe_luma, along, rng)
    rows = _draw_wave(options, options.plaid_period_pixels, options.plaid_luma, y, rng)
    columns = _draw_wave(options, options.plaid_period_pixels, options.plaid_luma, x, rng)
    if texture == "vertical":
        return rows + (columns + fine)
    return (rows + fine) + columns


def _draw_chroma(rng: np.random.Generator) -> tuple[float, float]:
    """Draw the two chroma values of the object."""
    blue, red = rng.uniform(-COLOUR_CHROMA, COLOUR_CHROMA, 2)
    return NEUTRAL_CHROMA + float(blue), NEUTRAL_CHROMA + float(red)


def _draw_tint(options: QuickstartOptions, texture: str, rng: np.random.Generator) -> Array:
    """Draw how far the two chroma planes of the background are from grey: (2,)."""
    turns = options.textures.index(texture) / len(options.textures)
    angle = 2 * np.pi * (turns + rng.uniform(-0.15, 0.15))
    tint: Array = np.array([np.cos(angle), np.sin(angle)], np.float32)
    return tint * np.float32(rng.uniform(*options.tint_chroma))


def _draw_wave(
    options: QuickstartOptions,
    period_pixels: Range,
    luma: Range,
    places: NDArray[np.float64],
    rng: np.random.Generator,
) -> Array:
    """Draw a sine of random period, amplitude and phase over ``places``, in pixels. It has their shape."""
    period, phase = _draw_size(options, period_pixels, rng), rng.uniform(0, 2 * np.pi)
    wave = np.sin(2 * np.pi * places / period + phase)
    scaled: Array = (rng.uniform(*luma) * wave).astype(np.float32)
    return scaled


def _draw_backgrounds(
    options: QuickstartOptions, family: int, margin: int, rng: np.random.Generator
) -> Array:
    """Draw luma and two chroma planes, with ``margin`` pixels on each side: (3, H + 2m, W + 2m).

    They have a smooth pattern with a gradient and blobs, and shapes in front of it.
    """
    height, width = options.height_pixels + 2 * margin, options.width_pixels + 2 * margin
    planes = np.stack([_draw_smooth(height, width, rng) for _ in range(3)])
    planes *= np.array([rng.uniform(8, 22), 12, 12], np.float32)[:, None, None]
    luma = rng.uniform(*options.background_luma) + options.scene_luma * (family - 1)
    planes += np.array([luma, NEUTRAL_CHROMA, NEUTRAL_CHROMA], np.float32)[:, None, None]
    for _ in range(rng.integers(*options.clutter_shapes, endpoint=True)):
        place = rng.uniform(0, 1, 2) * (width, height)
        turn, length = rng.uniform(0, 2 * np.pi), rng.uniform(4, 15)
        pose = Pose(*(_column(np.array([value])) for value in (*place, turn, length)))
        colour = rng.uniform(-1, 1, 3) * (40, COLOUR_CHROMA / 2, COLOUR_CHROMA / 2)
        mask = _mask(draw_shape(rng), pose, width, height, options.edge_pixels)
        planes += mask * colour.astype(np.float32)[:, None, None]
    return planes


def _draw_smooth(height: int, width: int, rng: np.random.Generator) -> Array:
    """Draw a smooth random pattern with mean 0 and standard deviation about 1: (height, width)."""
    y = np.linspace(0, 2 * np.pi, height, dtype=np.float32)[:, None]
    x = np.linspace(0, 2 * np.pi, width, dtype=np.float32)
    pattern = np.zeros((height, width), np.float32)
    num_waves = 4
    for _ in range(num_waves):
        # These are the waves over the whole frame. A wave of less than one turn is a gradient.
        turns = rng.uniform(-2, 2, 2).astype(np.float32)
        pattern += np.sin(turns[0] * x + turns[1] * y + np.float32(rng.uniform(0, 2 * np.pi)))
    # A sine has the variance 1/2, and the variances of the waves add up.
    return pattern / np.float32(np.sqrt(num_waves / 2))


def _moving_view(
    plane: Array, drift: Array, margin: int, every: int, size: tuple[int, int]
) -> Array:
    """Cut what the camera sees in each frame, ``size`` (W, H), out of a plane with ``margin`` pixels at each side.

    The result has the shape (T, H / every, W / every): it keeps every second row and column for ``every`` 2.
    """
    width, height = size
    views = np.empty((NUM_FRAMES, height // every, width // every), np.float32)
    for view, (right, down) in zip(views, drift, strict=True):
        rows = _shift(plane, margin - down, height, every)
        view[:] = _shift(rows.T, margin - right, width, every).T
    return views


def _shift(lines: Array, start: float, num_lines: int, every: int) -> Array:
    """Return lines from the fractional line ``start`` on, interpolated linearly: every n-th of ``num_lines``."""
    whole = int(np.floor(start))
    share = np.float32(start - whole)
    first = lines[whole : whole + num_lines : every]
    return first + share * (lines[whole + 1 : whole + 1 + num_lines : every] - first)
