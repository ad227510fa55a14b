"""Folders of images, and lossless videos of the same frames."""

from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
from PIL import Image
from stores import smooth_picture


def write_image(path: Path, picture: np.ndarray) -> Path:
    """A PNG, or a JPEG of high quality, by the ending of the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(picture[..., 0] if picture.shape[2] == 1 else picture)
    image.save(path, **({} if path.suffix == ".png" else {"quality": 95, "subsampling": 0}))
    return path


def write_folder(
    folder: Path, num_images: int = 12, name: str = "img_{:05d}.png", first: int = 1
) -> Path:
    """Smooth pictures 0, 1, ... with numbers from ``first``."""
    for number in range(num_images):
        write_image(folder / name.format(first + number), smooth_picture(number))
    return folder


def write_lossless(path: Path, pictures: Sequence[np.ndarray], rate: int) -> Path:
    """A video whose frames are exactly these pictures."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=rate)
        stream.height, stream.width, stream.pix_fmt = *pictures[0].shape[:2], "bgr0"
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path
