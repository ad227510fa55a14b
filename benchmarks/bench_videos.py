"""Make videos for measuring loading, in the usual size of Kinetics.

A camera swings over a rough picture, smaller pictures move in front of it, and there is sensor noise. The videos
are H.264 with ffmpeg's defaults (x264 medium, crf 23, a keyframe every 250 frames). The cost of loading depends
mostly on the number of bytes, so these should be realistic. Measured: 580 kb/s, and 8.9 kB for a frame in a
store. A real clip of this size has 684 kb/s and 8.1 kB.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from mgexp.run.files import atomic_file, atomic_write_text
from mgexp.video.processes import map_in_processes
from mgexp.video.store import StoreDir
from mgexp.video.store_encode import DEFAULT_QUANTIZER
from mgexp.video.store_fill import Order, fill_store

NUM_VIDEOS = 8
HEIGHT, WIDTH = 256, 340
SHORT_SIDES = (320, 224, 160)
"""Those of the store. Training draws short sides up to 320 pixels, so the largest is sharp enough for every clip.
At a crop of 112 pixels it draws from 128 to 320, so 224 are enough for half of the clips, and 160 for a sixth."""
FRAME_RATE = 30
SECONDS = 10
NOISE = 5.0
"""The standard deviation of the noise in grey levels."""
NUM_OBJECTS = 8


def make_bench_videos(folder: Path, progress: bool) -> list[str]:
    """Write the videos and their store to ``folder``, unless they exist. They are the same every time.

    Return the KEY VALUE pairs that select them. Raises InputError if the folder contains another store, and
    OSError if it cannot be written.
    """
    root, list_file, store = folder / "videos", folder / "train.csv", folder / "store"
    names = write_videos(root, progress)
    atomic_write_text(list_file, "".join(f"{name} 0\n" for name in names))
    fill_store(StoreDir(store), Order(root, SHORT_SIDES, DEFAULT_QUANTIZER), names, 2, progress)
    keys = {"FORMAT": "list", "TRAIN_LIST": list_file, "PATH_PREFIX": root, "STORE": store}
    return [part for key, value in keys.items() for part in (f"DATA.{key}", str(value))]


def write_videos(root: Path, progress: bool) -> list[str]:
    """Write the videos that do not exist to ``root``, and return the names of all."""
    root.mkdir(parents=True, exist_ok=True)
    names = [f"{number}.mp4" for number in range(NUM_VIDEOS)]
    lacking = [number for number, name in enumerate(names) if not (root / name).exists()]
    written = map_in_processes(partial(_write, root), lacking, 2)
    list(tqdm(written, desc="videos", total=len(lacking), disable=None if progress else True))
    return names


def _write(root: Path, number: int) -> int:
    with (
        atomic_file(root / f"{number}.mp4") as file,
        av.open(file, "w", format="mp4") as container,
    ):
        options = {"preset": "medium", "crf": "23", "g": "250"}
        stream = container.add_stream("libx264", rate=FRAME_RATE, options=options)
        stream.height, stream.width, stream.pix_fmt = HEIGHT, WIDTH, "yuv420p"
        for picture in _pictures(np.random.default_rng(number)):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        # encode() without a frame gives the last frames, which the encoder still keeps.
        container.mux(stream.encode())
    return number


def _pictures(rng: np.random.Generator) -> Iterator[NDArray[np.uint8]]:
    """Yield the frames (H, W, 3) of one video."""
    scene = _texture(rng, 2 * HEIGHT, 2 * WIDTH)
    objects = [_texture(rng, *rng.integers(50, 120, 2)) for _ in range(NUM_OBJECTS)]
    paths = [_path(rng) for _ in range(NUM_OBJECTS + 1)]
    for number in range(FRAME_RATE * SECONDS):
        top, left = _place(paths[0], number, scene.shape[0] - HEIGHT, scene.shape[1] - WIDTH)
        picture = scene[top : top + HEIGHT, left : left + WIDTH].copy()
        for shown, path in zip(objects, paths[1:], strict=True):
            tall, wide, _ = shown.shape
            top, left = _place(path, number, HEIGHT - tall, WIDTH - wide)
            picture[top : top + tall, left : left + wide] = shown
        noisy = picture + rng.normal(0, NOISE, picture.shape)
        yield noisy.round().clip(0, 255).astype(np.uint8)


def _texture(rng: np.random.Generator, height: int, width: int) -> NDArray[np.float64]:
    """Draw noise (height, width, 3) whose amplitude falls with frequency, as in photographs."""
    # White noise would be far harder to compress than a photograph. Brightness varies more than colour (50 to 12).
    rows, columns = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)
    amplitude = np.maximum(np.hypot(rows, columns), 1 / max(height, width)) ** -1.6
    planes = rng.normal(size=(4, height, width))
    smooth = np.fft.irfft2(np.fft.rfft2(planes) * amplitude, s=(height, width))
    smooth /= smooth.std(axis=(1, 2), keepdims=True)
    picture: NDArray[np.float64] = (
        128 + 50 * smooth[0, ..., None] + 12 * np.moveaxis(smooth[1:], 0, -1)
    )
    return picture


def _path(rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw the period in frames and the phase, for the vertical and for the horizontal movement."""
    return np.stack([rng.uniform(40, 100, 2), rng.uniform(0, 2 * np.pi, 2)], axis=1)


def _place(path: NDArray[np.float64], number: int, *room: int) -> list[int]:
    """Compute the position in frame ``number`` of an object that swings over ``room`` pixels."""
    swing = 0.5 + 0.5 * np.sin(2 * np.pi * number / path[:, 0] + path[:, 1])
    return [int(share * pixels) for share, pixels in zip(swing, room, strict=True)]
