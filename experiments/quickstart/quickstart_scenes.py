"""Draws the quickstart videos: one object moves over a still, cluttered background, all seen through fine stripes.

A video is of a class, motion × texture, that one frame cannot tell and coarse pixels cannot either:

- Motions are pairs of which the second is the first in reverse order, so a set of frames without their
  order does not tell the two apart. A motion that is not the class's stays near a random point of its
  path: one frame looks alike in all classes.
- The texture is fine stripes, horizontal or vertical, all over the screen and fixed to it. Coarser stripes
  of random strength run both ways beside them, and a resize to a short side of 45 pixels turns the fine
  stripes into a weak alias that looks like those.

Every draw follows from (seed, split, index). Times T = 40 frames, planes are (H, W) = (64, 80).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from mgexp.errors import InputError

Array = NDArray[np.float32]
Shape = Callable[[Array, Array], Array]
"""From coordinates (u, v), in half lengths of the shape along and across it, to distances in that unit."""


def draw_shape(rng: np.random.Generator) -> Shape:
    """Draw a kind of shape and its width.

    A shape is a signed distance: below 0 inside, above 0 outside. All shapes are longer than wide, so the angle at
    which one lies changes what each motion looks like.
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
    # Right on the edge of the ends and the sides, and near enough between for a soft edge of a pixel.
    radius: Array = np.hypot(u, v / width)
    return (radius - 1) * width


def _triangle(u: Array, v: Array, width: float) -> Array:
    # The tip is at u = 1, the base at u = -0.8 and 2.8 times as long as `width`.
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


HEIGHT_PIXELS = 64
WIDTH_PIXELS = 80
NUM_FRAMES = 40
FRAME_RATE = 30
"""Frames per second."""

SPLITS = ("train", "val")

MOTIONS = (
    ("fall", "rise"),
    ("approach", "recede"),
    ("slide_right", "slide_left"),
)
"""Pairs: a video of the second motion is one of the first with its frames in reverse order."""

TEXTURES = ("horizontal", "vertical")
"""Which way the fine stripes run."""

CLASS_NAMES = tuple(
    f"{name}_{texture}" for pair in MOTIONS for name in pair for texture in TEXTURES
)
"""The name of each label."""

Range = tuple[float, float]
"""Each video draws a value from here, uniformly."""


@dataclass(frozen=True)
class QuickstartOptions:
    """Everything that the pixels of the set follow from. Lengths are pixels of the 80 × 64 video.

    Brightness is H.264 luma, 16 (black) to 235 (white). The ranges are assumptions, tried with small
    networks on motions and textures apart. Raises InputError for values that no video can have.
    """

    num_train: int = 1200
    """Training videos."""

    num_val: int = 1200
    """Validation videos."""

    seed: int = 0
    """Of all draws; not negative."""

    stripe_period_pixels: Range = (2.2, 2.45)
    """Below 64/45 × 2 = 2.84, a resize of the short side to 45 cannot show the stripes as they are: it
    leaves a weak alias (a fifth of the amplitude, as bilinear antialiasing is not a sharp filter)."""

    stripe_luma: Range = (20.0, 30.0)
    """Amplitude of the fine stripes, which are the class."""

    plaid_period_pixels: Range = (3.3, 4.1)
    """The coarse stripes, nuisance: where a resize to 45 puts the alias of the fine ones
    (aliases of periods 2.2 to 2.45 look like 3.4 to 4.0), so that what is left tells less of the class."""

    plaid_luma: Range = (0.0, 10.0)
    """Amplitude of the coarse stripes: one draw for the horizontal, another for the vertical ones."""

    fall_pixels: Range = (28.0, 38.0)
    """Covered by a falling or rising object in a video."""

    zoom_ratio: Range = (2.4, 3.2)
    """Largest size / smallest size of the object in a video."""

    slide_pixels: Range = (34.0, 46.0)
    """Covered by an object that slides to the right or left in a video."""

    sway: float = 0.05
    """Motions that are not the class's are present too, either way, at up to this share of their own
    range: 0 is none, below 1 the class's motion stays the largest."""

    unevenness: float = 0.15
    """Speed varies within a video by up to this share of its mean; below 1, so nothing turns back."""

    size_pixels: Range = (14.0, 20.0)
    """Half the length of the object, at the middle of its zoom."""

    edge_pixels: float = 8.0
    """Width of the soft edge of the object and of the clutter. What moves by less than its edge between two
    frames shows a network of few steps which way: with edges of 1 pixel long+short got 2.2 points less
    (measured, seed 0, all else equal)."""

    place_pixels: float = 4.0
    """The middle of the object's path is up to this far from that of the frame, in x and in y."""

    background_luma: Range = (50.0, 110.0)
    """Mean of the background."""

    object_luma: Range = (65.0, 90.0)
    """How much brighter the object is than the mean background. Never darker: after 12 epochs of 1,200
    videos a network of four 3D convolutions told 83 % of the motions so, 26 % with either sign (measured
    on paler, more cluttered videos with turning objects instead of falling ones)."""

    hidden_share: float = 0.015
    """Share of the videos in which the object is not to be seen and nobody can tell the motion: what keeps
    every network below 100 %."""

    clutter_shapes: tuple[int, int] = (0, 3)
    """Least and largest number of shapes in the background, both included."""

    drift_pixels: float = 1.0
    """The camera moves up to this far in a video, any way."""

    noise_luma: float = 2.5
    """Standard deviation of the sensor noise, drawn for each pixel of each frame."""

    quantizer: int = 28
    """H.264 QP, the same for every frame: 0 is lossless, 51 the coarsest."""

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
            if isinstance(value, tuple) and value[0] > value[1]
        ]
        return problems

    def _shares(self) -> dict[str, float]:
        names = ("sway", "unevenness", "hidden_share")
        return {name: getattr(self, name) for name in names}

    def num_videos(self, split: str) -> int:
        """Videos of "train" or "val"."""
        return {"train": self.num_train, "val": self.num_val}[split]


def draw_label(options: QuickstartOptions, split: str, index: int) -> int:
    """The class of a video: each 12 in a row are the 12 classes in an order of their own.

    So classes are balanced, and stay so, nearly, in any evenly spaced part of a list.
    """
    block, place = divmod(index, len(CLASS_NAMES))
    rng = np.random.default_rng((options.seed, SPLITS.index(split), block))
    return int(rng.permutation(len(CLASS_NAMES))[place])


FALL, ZOOM, SLIDE = range(len(MOTIONS))
NEUTRAL_CHROMA = 128
COLOUR_CHROMA = 45
"""Chroma of the object and of clutter differs from neutral by up to this much."""


@dataclass(frozen=True)
class Pose:
    """Where the object is: ``x`` and ``y`` of its middle and its half ``length``, in pixels, ``angle`` in
    radians, clockwise on the screen. Arrays of (T, 1, 1), or of (1, 1, 1) for what does not change."""

    x: Array
    y: Array
    angle: Array
    length: Array


def draw_video(options: QuickstartOptions, split: str, index: int) -> NDArray[np.uint8]:
    """The frames of one video: (T, 96, 80), planar YUV 4:2:0 as PyAV takes it, luma above chroma."""
    # A fourth number tells these draws from those of the labels, which are seeded by three.
    rng = np.random.default_rng((options.seed, SPLITS.index(split), index, 1))
    motion, texture = divmod(draw_label(options, split, index), len(TEXTURES))
    family, backwards = divmod(motion, 2)
    frames = _draw_forwards(options, family, texture, rng)
    return frames[::-1] if backwards else frames


def _draw_forwards(
    options: QuickstartOptions, family: int, texture: int, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """A video of the first motion of a pair."""
    drift = _draw_drift(options.drift_pixels, rng)
    margin = int(np.ceil(options.drift_pixels / 2)) + 1
    backgrounds = _draw_backgrounds(options, margin, rng)
    pose = draw_pose(options, family, drift, rng)
    mask = _mask(draw_shape(rng), pose, WIDTH_PIXELS, HEIGHT_PIXELS, options.edge_pixels)
    mask *= np.float32(rng.random() >= options.hidden_share)
    luma = float(backgrounds[0].mean()) + rng.uniform(*options.object_luma)
    colours = (luma, *_draw_chroma(rng))

    views = [_moving_view(background, drift, margin) for background in backgrounds]
    y, u, v = (view + mask * (colour - view) for view, colour in zip(views, colours, strict=True))
    y += _draw_stripes(options, texture, rng)
    y += options.noise_luma * rng.standard_normal(y.shape, dtype=np.float32)
    planes = (y, u[:, ::2, ::2], v[:, ::2, ::2])
    video = np.concatenate([plane.reshape(NUM_FRAMES, -1) for plane in planes], axis=1)
    # Video levels are 16 to 235; chroma never comes near its own limits.
    levels: NDArray[np.uint8] = np.clip(np.rint(video), 16, 235).astype(np.uint8)
    return levels.reshape(NUM_FRAMES, -1, WIDTH_PIXELS)


def _draw_drift(drift_pixels: float, rng: np.random.Generator) -> Array:
    """How far the camera's view has moved the scene in each frame: (T, 2), x and y, mean 0."""
    angle, distance = rng.uniform(0, 2 * np.pi), rng.uniform(0, drift_pixels)
    step = distance * np.array([np.cos(angle), np.sin(angle)])
    return np.outer(_times(), step).astype(np.float32)


def _times() -> NDArray[np.float64]:
    """From -0.5 to 0.5, so that reversing the order only changes the sign."""
    return np.linspace(-0.5, 0.5, NUM_FRAMES)


def draw_pose(
    options: QuickstartOptions, family: int, drift: Array, rng: np.random.Generator
) -> Pose:
    """The path of an object that falls, grows, or slides to the right; it lies at any angle."""
    ranges = (options.fall_pixels, options.zoom_ratio, options.slide_pixels)
    amounts = [rng.uniform(*amount) for amount in ranges]
    path = [_draw_path(options, kind == family, rng) for kind in range(len(MOTIONS))]
    place = rng.uniform(-options.place_pixels, options.place_pixels, 2)
    turn = rng.uniform(0, 2 * np.pi)
    size = rng.uniform(*options.size_pixels)
    return Pose(
        x=_column(WIDTH_PIXELS / 2 + place[0] + amounts[SLIDE] * path[SLIDE] + drift[:, 0]),
        y=_column(HEIGHT_PIXELS / 2 + place[1] + amounts[FALL] * path[FALL] + drift[:, 1]),
        angle=_column(np.array([turn])),
        length=_column(size * amounts[ZOOM] ** path[ZOOM]),
    )


def _draw_path(
    options: QuickstartOptions, is_class: bool, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Where on its path, -0.5 to 0.5, one motion is in each frame: (T,).

    The class's motion takes the whole path; another one stays near a random point of it.
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
    """How much of each pixel the shape covers, 0 to 1: (T, height, width), ``edge`` pixels wide at its rim."""
    cos, sin = np.cos(pose.angle) / pose.length, np.sin(pose.angle) / pose.length
    x = np.arange(width, dtype=np.float32) - pose.x
    y = np.arange(height, dtype=np.float32)[:, None] - pose.y
    distance = shape(cos * x + sin * y, cos * y - sin * x)
    mask: Array = np.clip(0.5 - distance * pose.length / edge, 0, 1)
    return mask


def _draw_stripes(options: QuickstartOptions, texture: int, rng: np.random.Generator) -> Array:
    """Luma of the stripes: the fine ones, which are the class, and the coarse ones, both ways: (H, W)."""
    fine = _draw_wave(options.stripe_period_pixels, options.stripe_luma, rng)
    rows = _draw_wave(options.plaid_period_pixels, options.plaid_luma, rng)
    columns = _draw_wave(options.plaid_period_pixels, options.plaid_luma, rng)
    if TEXTURES[texture] == "horizontal":
        rows += fine
    else:
        columns += fine
    stripes: Array = rows[:HEIGHT_PIXELS, None] + columns
    return stripes


def _draw_chroma(rng: np.random.Generator) -> tuple[float, float]:
    """The object's two chroma values."""
    blue, red = rng.uniform(-COLOUR_CHROMA, COLOUR_CHROMA, 2)
    return NEUTRAL_CHROMA + float(blue), NEUTRAL_CHROMA + float(red)


def _draw_wave(period_pixels: Range, luma: Range, rng: np.random.Generator) -> Array:
    """A sine of random period, amplitude and phase: (W,)."""
    period, phase = rng.uniform(*period_pixels), rng.uniform(0, 2 * np.pi)
    wave = np.sin(2 * np.pi * np.arange(WIDTH_PIXELS) / period + phase)
    scaled: Array = (rng.uniform(*luma) * wave).astype(np.float32)
    return scaled


def _draw_backgrounds(options: QuickstartOptions, margin: int, rng: np.random.Generator) -> Array:
    """Luma and two chroma planes, with ``margin`` pixels on each side: (3, H + 2m, W + 2m).

    A smooth pattern, which has a gradient and blobs, and shapes on it.
    """
    height, width = HEIGHT_PIXELS + 2 * margin, WIDTH_PIXELS + 2 * margin
    planes = np.stack([_draw_smooth(height, width, rng) for _ in range(3)])
    planes *= np.array([rng.uniform(8, 22), 12, 12], np.float32)[:, None, None]
    planes += np.array(
        [rng.uniform(*options.background_luma), NEUTRAL_CHROMA, NEUTRAL_CHROMA], np.float32
    )[:, None, None]
    for _ in range(rng.integers(*options.clutter_shapes, endpoint=True)):
        place = rng.uniform(0, 1, 2) * (width, height)
        turn, length = rng.uniform(0, 2 * np.pi), rng.uniform(4, 15)
        pose = Pose(*(_column(np.array([value])) for value in (*place, turn, length)))
        colour = rng.uniform(-1, 1, 3) * (40, COLOUR_CHROMA / 2, COLOUR_CHROMA / 2)
        mask = _mask(draw_shape(rng), pose, width, height, options.edge_pixels)
        planes += mask * colour.astype(np.float32)[:, None, None]
    return planes


def _draw_smooth(height: int, width: int, rng: np.random.Generator) -> Array:
    """A smooth random pattern, mean 0 and standard deviation about 1: (height, width)."""
    y = np.linspace(0, 2 * np.pi, height, dtype=np.float32)[:, None]
    x = np.linspace(0, 2 * np.pi, width, dtype=np.float32)
    pattern = np.zeros((height, width), np.float32)
    num_waves = 4
    for _ in range(num_waves):
        turns = rng.uniform(-2, 2, 2).astype(np.float32)  # over the frame; slow ones are gradients
        pattern += np.sin(turns[0] * x + turns[1] * y + np.float32(rng.uniform(0, 2 * np.pi)))
    return pattern / np.float32(np.sqrt(num_waves / 2))


def _moving_view(plane: Array, drift: Array, margin: int) -> Array:
    """What the camera sees of a plane with ``margin`` pixels on each side, in each frame: (T, H, W)."""
    views = np.empty((NUM_FRAMES, HEIGHT_PIXELS, WIDTH_PIXELS), np.float32)
    for view, (right, down) in zip(views, drift, strict=True):
        rows = _shift(plane, margin - down, HEIGHT_PIXELS)
        view[:] = _shift(rows.T, margin - right, WIDTH_PIXELS).T
    return views


def _shift(lines: Array, start: float, num_lines: int) -> Array:
    """``num_lines`` lines from the fractional line ``start`` on, between neighbours linearly."""
    whole = int(np.floor(start))
    share = np.float32(start - whole)
    first = lines[whole : whole + num_lines]
    return first + share * (lines[whole + 1 : whole + 1 + num_lines] - first)
