"""Smooth videos, whose copies must look alike, and stores of them."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from mgexp.video.pyav import PyavReader
from mgexp.video.store import StoreDir
from mgexp.video.store_fill import Order

TALL, WIDE = 96, 128
TIME_BASE = Fraction(1, 15360)
REGULAR = [number * 512 for number in range(30)]
IRREGULAR = np.cumsum(np.random.default_rng(1).integers(60, 2000, 30)).tolist()
QUANTIZER = 2


class NotedOpener(list):
    """Opens videos, and holds their paths."""

    def __init__(self, opener=PyavReader):
        self.opener = opener

    def __call__(self, path):
        self.append(path)
        return self.opener(path)


def smooth_picture(number: int, tall: int = TALL, wide: int = WIDE) -> np.ndarray:
    """A gradient with a bright spot that wanders: no two frames, and no two corners, are alike."""
    rows, columns = np.mgrid[0:tall, 0:wide]
    spot = 120 * np.exp(-((rows - tall / 3) ** 2 + (columns - 3 * number - 10) ** 2) / 200)
    shades = [100 * rows / tall + spot, 100 * columns / wide + spot, 3.0 * number + spot]
    return np.stack(shades, axis=-1).round().clip(0, 255).astype(np.uint8)


def write_smooth(
    path: Path, *, ticks=REGULAR, tall=TALL, wide=WIDE, pix_fmt="yuv420p", colorspace="bt470bg"
) -> Path:
    """A long-GOP file with B-frames."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {"g": "250", "bf": "3", "crf": "10", "colorspace": colorspace}
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options=options)
        stream.height, stream.width, stream.pix_fmt = tall, wide, pix_fmt
        stream.time_base = stream.codec_context.time_base = TIME_BASE
        for number, tick in enumerate(ticks):
            frame = av.VideoFrame.from_ndarray(smooth_picture(number, tall, wide), format="rgb24")
            frame.pts, frame.time_base = tick, TIME_BASE
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def order(root: Path, *levels: int) -> Order:
    """Copies of good quality at ``levels``."""
    return Order(root, levels or (64, 32), QUANTIZER)


def store_in(folder: Path) -> StoreDir:
    """The folder of a store."""
    return StoreDir(folder / "store")


def psnr(one: np.ndarray, other: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB."""
    error = np.mean((one.astype(np.float64) - other) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-12)))
