"""Folders of numbered images as videos: img_00001.jpg, img_00002.jpg, and so on.

Images have no times, so all folders get one frame rate, DATA.FRAMES_FPS. The numbers may start anywhere, have any
number of digits and any even distance, such as 5, 10, 15. Any text may stand before them, and parentheses around
them. A folder has one series of images. Optical flow, which some tools put beside the images, is left out.

Pillow decodes the images: torchvision's decoder will be removed, and PyAV takes a JPEG whose end is missing for a
whole one.
"""

from __future__ import annotations

import math
import os
import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise

import numpy as np
from PIL import Image

from mgexp.video.pyav import PyavReader
from mgexp.video.reader import (
    DEFAULT_FRAMES_FPS,
    TOLERANCE_SECONDS,
    Cut,
    Frames,
    FramesArray,
    Size,
    Times,
    Video,
    VideoError,
    whole,
)

ENDINGS = (".jpg", ".jpeg", ".png")
"""Endings of the images, in small or capital letters."""
FORMATS = ("JPEG", "PNG")
"""What an image may contain, whatever its name says."""
FLOW = "flow_"
"""The beginning of the names of optical flow: denseflow and MMAction2 write flow_x_00001.jpg."""


def images_of(folder: str) -> tuple[str, ...]:
    """Return the names of the images of a folder in the order of their numbers.

    Raises VideoError if there are none, if the numbers are not evenly spaced, or if there are several series.
    """
    try:
        names = [name for name in os.listdir(folder) if is_image(name)]
    except OSError as error:
        raise VideoError(folder, f"cannot be opened: {error.strerror}") from error
    numbered: list[tuple[int, str]] = []
    series: dict[str, str] = {}
    for name in names:
        # Windows names them "img (1).jpg".
        match = re.fullmatch(r"(.*?)([0-9]{1,18})\)?\.[a-z]+", name, re.IGNORECASE)
        if match is None:
            raise VideoError(folder, f"holds an image without a number, {name}: remove it")
        series.setdefault(match[1], name)
        numbered.append((int(match[2]), name))
    if not numbered:
        raise VideoError(folder, f"is a folder without images ({', '.join(ENDINGS)})")
    if len(series) > 1:
        first, second = sorted(series.values())[:2]
        raise VideoError(folder, f"holds several series of images, such as {first} and {second}")
    numbered.sort()
    distances = {after - before for (before, _), (after, _) in pairwise(numbered)}
    distance = max(1, min(distances, default=1))
    for (before, name_before), (after, name_after) in pairwise(numbered):
        if after != before + distance:
            what = "has a gap" if after > before else "has a number twice"
            raise VideoError(folder, f"{what}: {name_before} is followed by {name_after}")
    return tuple(name for _, name in numbered)


def is_image(name: str) -> bool:
    """Tell whether a file in a folder of frames is one of its frames, by its name."""
    return name.lower().endswith(ENDINGS) and not name.startswith((".", FLOW))


def read_image(path: str) -> FramesArray:
    """Decode an image: uint8, RGB, (H, W, 3). Grey becomes RGB, and transparency is dropped.

    A turn that EXIF asks for is ignored. Raises VideoError if the image is damaged.
    """
    try:
        # Python reads the file, because the time limit of a video can interrupt Python.
        with open(path, "rb") as file:
            data = BytesIO(file.read())
    except OSError as error:
        raise VideoError(path, f"cannot be read: {error.strerror}") from error
    if not data.getbuffer():
        raise VideoError(path, "is empty")
    try:
        with Image.open(data, formats=FORMATS) as image:
            # Pillow reads a grey PNG of 16 bits as such, and cuts the others to 8. Byte 24 of a PNG has its bits.
            is_deep = image.format == "PNG" and data.getvalue()[24] > 8
            if is_deep or image.mode[0] in "IF":
                raise VideoError(path, "has 16 or 32 bits for each colour: save it with 8")
            return np.array(image.convert("RGB"))
    # A damaged PNG may also end in a SyntaxError, and one with much text in a ValueError.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise VideoError(path, f"cannot be decoded: {reason}") from error


def resized(picture: FramesArray, size: Size) -> FramesArray:
    """Resize a picture (H, W, 3) to ``size``, bilinearly with antialiasing, on uint8."""
    import torch

    from mgexp.wheels import transforms_v2

    planes = torch.from_numpy(picture).permute(2, 0, 1)
    resize = transforms_v2.functional.resize
    shown: FramesArray = resize(planes, [*size], antialias=True).permute(1, 2, 0).numpy()
    return shown


class FrameFolder:
    """An open folder of images. Image k is on display from k / ``fps`` to (k + 1) / ``fps`` seconds.

    Raises VideoError if the images are no sequence.
    """

    def __init__(self, path: str, fps: float = DEFAULT_FRAMES_FPS) -> None:
        self.path = path
        self.fps = fps
        self.images = images_of(path)

    @property
    def duration_seconds(self) -> float:
        return len(self.images) / self.fps

    def frames_at(
        self, times_seconds: Times, short_side: float | None = None, cut: Cut = whole
    ) -> Frames:
        """See ``Video``. All images are resized to the size of the first one of the clip."""
        last = len(self.images) - 1
        places = [math.floor((time + TOLERANCE_SECONDS) * self.fps) for time in times_seconds]
        places = [min(max(0, place), last) for place in places]
        first = self.image(places[0])
        size: Size = (first.shape[0], first.shape[1])
        part = cut(size)
        pixels = np.empty((len(places), part.height, part.width, 3), np.uint8)
        for place in dict.fromkeys(places):
            picture = first if place == places[0] else self.image(place)
            own_size = (picture.shape[0], picture.shape[1])
            shown = part if own_size == size else part.on(size, own_size)
            region = picture[shown.rows, shown.columns]
            if own_size != size:
                region = resized(region, (part.height, part.width))
            pixels[[row for row, other in enumerate(places) if other == place]] = region
        return Frames(pixels, size, part)

    def image(self, place: int) -> FramesArray:
        return read_image(f"{self.path}/{self.images[place]}")


@dataclass(frozen=True)
class FilesAndFolders:
    """An ``Opener`` of video files, and of folders of images, at ``frames_fps``."""

    frames_fps: float = DEFAULT_FRAMES_FPS

    def __call__(self, path: str) -> AbstractContextManager[Video]:
        is_folder = os.path.isdir(path)
        return nullcontext(FrameFolder(path, self.frames_fps)) if is_folder else PyavReader(path)
