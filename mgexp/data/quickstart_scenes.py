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

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mgexp.data.quickstart_options import (
    HEIGHT_PIXELS,
    MOTIONS,
    NUM_FRAMES,
    SPLITS,
    TEXTURES,
    WIDTH_PIXELS,
    QuickstartOptions,
    Range,
    draw_label,
)
from mgexp.data.quickstart_shapes import Array, Shape, draw_shape

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
