"""Training clips: from a request to a random clip of a video.

Every draw follows from the seed of the request, which names a position in the stream. So the same request gives
the same clip in any process, at any time, whatever was loaded before it.

A stride counts frames on a grid of ``target_fps``, whatever the frame rate of the file is. So a
stride spans the same time in every video. For each moment, the reader gives the frame that is on
display at that moment. After the end of the video it gives the last frame.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from mgexp.data.records import Record, Shown, Span, Target
from mgexp.data.time_limit import NO_LIMIT, TimeLimit
from mgexp.errors import InputError
from mgexp.multigrid.sampler import ClipRequest
from mgexp.video.reader import Cut, Opener, Region, Size, VideoError

Times = NDArray[np.float64]
"""Moments in seconds from the start of the video, one for each frame of a clip."""

Change = Callable[[Tensor, int], Tensor]
"""Changes the frames of a clip, uint8 (T, S, S, 3), by draws from a seed: see ``mgexp/data/augment.py``."""

SOURCE_SHORT_SIDE = 256
"""Pixels of the short side of a video, or of its copy in a store. Assumption: most copies of Kinetics-400 have it.
A video of full size has larger regions, so it should be read from a store."""


MAX_ATTEMPTS = 10
"""Number of videos that are tried for one clip. Assumption: ten in a row fail only if nearly all videos fail."""

Unusable = tuple[tuple[int, str], ...]
"""(index of the record, what is wrong with it) of each video that failed."""


def draw_times(
    duration_seconds: float, request: ClipRequest, target_fps: float, rng: np.random.Generator
) -> Times:
    """Draw the moments that a clip shows: a stride, then a start. Without strides, one moment in each segment.

    The stride is a whole number of grid frames, uniform over the range, both ends included. The start is uniform
    over all starts that keep every moment in [0, duration). It is 0 if the clip is longer than the video.
    Source: released code, slowfast/datasets/utils.py, get_random_sampling_rate.
    """
    if request.stride_range is None:
        return segment_times(duration_seconds, request.frames, rng)
    first, last = request.stride_range
    stride = int(rng.integers(first, last + 1))
    steps = np.arange(request.frames, dtype=np.float64) * (stride / target_fps)
    # The last frame stays on display until the end of the video, so the last moment of the clip may
    # be as late as this end. If it had to be a grid frame earlier, the last frame would be drawn
    # less often than the other frames.
    latest_start = max(0.0, duration_seconds - float(steps[-1]))
    return steps + rng.uniform(0.0, latest_start)


def segment_times(
    duration_seconds: float, frames: int, rng: np.random.Generator | None = None
) -> Times:
    """Return one moment in each of ``frames`` equal segments of the video: random by ``rng``, else the middle.

    Source: released code, slowfast/datasets/ssv2.py, get_seq_frames (it draws whole frames).
    """
    within = rng.random(frames) if rng is not None else 0.5
    return (np.arange(frames, dtype=np.float64) + within) * (duration_seconds / frames)


def stretch(record: Record, duration_seconds: float) -> Span:
    """Return the seconds of a video that clips show. Raises VideoError if the video ends before them."""
    start, end = record.part or (0.0, duration_seconds)
    if start >= duration_seconds:
        raise VideoError(record.path, f"ends before the stretch at {start:g} s")
    return start, min(end, duration_seconds)


@dataclass(frozen=True)
class SquareCrop:
    """Square crops from a frame that is resized to a short side of random length.

    ``jitter``: least and largest short side, in pixels, at the full crop. A side is uniform in between. With
    ``inverse_uniform`` (SSv2 and Charades), 1 / side is uniform instead. For a smaller crop the least side is
    scaled by crop / ``full_crop``; the largest is not. Source: released code, slowfast/datasets/kinetics.py (which
    also rounds the least) and transform.py, random_short_side_scale_jitter.
    Raises InputError for a jitter that cannot hold the crop.
    """

    jitter: tuple[int, int]
    full_crop: int
    inverse_uniform: bool = False

    def __post_init__(self) -> None:
        least, largest = self.jitter
        if not self.full_crop <= least <= largest:
            drawn = f"short sides are drawn from {least} to {largest} pixels"
            remedy = "give the least first, and none below the crop"
            raise InputError([f"{drawn}, but the crop is {self.full_crop}: {remedy}"])

    def draw(self, crop: int, rng: np.random.Generator) -> tuple[float, Cut]:
        """Draw the short side for a crop of ``crop`` pixels; also return what draws its region in a frame."""
        least, largest = self.jitter[0] * crop / self.full_crop, self.jitter[1]
        if self.inverse_uniform:
            short_side = 1.0 / rng.uniform(1.0 / largest, 1.0 / least)
        else:
            short_side = rng.uniform(least, largest)
        return short_side, partial(random_region, crop=crop, short_side=short_side, rng=rng)

    def largest_side(self) -> int:
        """Return the pixels along a side of the largest region of a video of the usual size."""
        # It is the same for crops of all sizes: a smaller crop is cut from a frame that is as much smaller.
        return math.ceil(SOURCE_SHORT_SIDE * self.full_crop / self.jitter[0])


def random_region(size: Size, crop: int, short_side: float, rng: np.random.Generator) -> Region:
    """Draw the source square of a random crop of ``crop`` pixels from a frame resized to ``short_side``.

    The top is drawn first, then the left. Source: released code, slowfast/datasets/transform.py,
    random_crop.
    """
    # The released code resizes the whole frame and then cuts the crop. We cut the square first and then resize it.
    # This shows the same part, and touches only the pixels that are kept. Every offset of the square is equally
    # likely. (The released code never draws the last one.)
    height, width = size
    # For a source of very few pixels, the rounded number could be 0.
    side = max(1, round(crop * min(height, width) / short_side))
    top = int(rng.integers(0, height - side + 1))
    left = int(rng.integers(0, width - side + 1))
    return Region(top, left, side, side)


@dataclass(frozen=True)
class RelativeCrop:
    """Crops that are a random share of the frame, of random shape, as networks of images are trained with.

    ``areas``: least and largest area / that of the frame. ``aspects``: least and largest width / height, or with
    ``of_frame`` that ratio / that of the frame. A crop is resized to a square, so the picture is stretched. Every
    shape of a schedule draws the same shares.
    Source: released code, slowfast/datasets/transform.py, random_resized_crop, which is torchvision's
    RandomResizedCrop.

    No short side is drawn. The frames come from the copy in a store that a short side of ``short_side`` pixels at
    the crop ``full_crop`` needs, or one as much smaller as the crop is. The released code cuts such crops out of
    the files as they are, and those of Kinetics usually have 256 to 340 pixels.
    """

    areas: tuple[float, float]
    aspects: tuple[float, float]
    short_side: int
    full_crop: int
    of_frame: bool = False

    def draw(self, crop: int, rng: np.random.Generator) -> tuple[float, Cut]:
        return self.short_side * crop / self.full_crop, partial(self.region, rng=rng)

    def largest_side(self) -> int:
        """Return the side of a square of as many pixels as the largest region."""
        least, largest = self.aspects
        # Wide crops are largest in wide frames, and tall crops in tall frames.
        return math.ceil(self.short_side * math.sqrt(max(1.0, largest, 1 / least)))

    def region(self, size: Size, rng: np.random.Generator) -> Region:
        """Draw the region of a frame. If ten draws do not fit, take the largest one in the centre.

        An area is uniform, the logarithm of an aspect ratio too, and every offset of a region that fits.
        """
        height, width = size
        unit = width / height if self.of_frame else 1.0
        least, largest = (aspect * unit for aspect in self.aspects)
        for _ in range(10):
            area = rng.uniform(*self.areas) * height * width
            aspect = math.exp(rng.uniform(math.log(least), math.log(largest)))
            wide, tall = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < wide <= width and 0 < tall <= height:
                top = int(rng.integers(0, height - tall + 1))
                left = int(rng.integers(0, width - wide + 1))
                return Region(top, left, tall, wide)
        wide, tall = width, height
        if width / height < least:
            tall = max(1, round(width / least))
        elif width / height > largest:
            wide = max(1, round(height * largest))
        return Region((height - tall) // 2, (width - wide) // 2, tall, wide)


def finish(frames: Tensor, crop: int, augment: Change | None = None, seed: int = 0) -> Tensor:
    """Make the frames of a clip, uint8 (T, crop, crop, 3) and contiguous, from those of its region (T, h, w, 3).

    They are resized, bilinearly and with antialiasing, and then augmented. On a GPU, torchvision resizes in
    float32 and rounds to uint8.
    """
    planes = frames.permute(0, 3, 1, 2)
    if frames.shape[1:3] != (crop, crop):
        # torchvision takes seconds to import, and most commands do not need it.
        from mgexp.wheels import transforms_v2

        # The region is a view into larger frames, and is not copied first: torch resizes channels-last
        # frames with strides twice as fast as contiguous planes. (Measured with torch 2.15, 16 frames
        # from 60 to 64 pixels: 131 against 290 us.)
        planes = transforms_v2.functional.resize(planes, [crop, crop], antialias=True)
    resized = planes.permute(0, 2, 3, 1).contiguous()
    return augment(resized, seed) if augment else resized


@dataclass(frozen=True)
class Clip:
    """One training clip: ``frames`` uint8 (T, S, S, 3) of record ``index``, and the ``label`` of its span.

    If the clip is not finished, ``frames`` has the region (T, h, w, 3) of the video instead. ``crop`` is S, and
    ``seed`` the draw of the augmentation, for ``finish``.

    ``flipped``: whether the network gets the clip mirrored, left for right.

    If videos failed, ``index`` is the record that replaced them, and ``unusable`` has them in the
    order of the attempts. If all attempts failed, there are no frames: (0, S, S, 3).
    """

    frames: Tensor
    label: Target
    index: int
    unusable: Unusable
    crop: int
    seed: int = 0
    # It is drawn with everything else, but ``mgexp.train.step.Normalizer`` mirrors the clip on the device,
    # where it costs a GPU nothing. Here it would make a worker up to 2 % slower (measured, every second clip:
    # 0.03 ms for 8 × 112², 0.6 ms for 32 × 224²).
    flipped: bool = False


@dataclass(eq=False)
class TrainingClips(Dataset[Clip]):
    """Random clips of videos, one for each ``ClipRequest``.

    ``crops``: how the crop of a clip is drawn. ``flip``: mirror half of the clips, at random.
    ``augment``: further changes to a clip; None: no changes.
    ``finishes``: resize and augment each clip here. If not, ``mgexp/data/batches.py`` does it on a device.
    ``limit``: the time that a video may take.
    """

    records: Sequence[Record]
    _: KW_ONLY
    target_fps: float
    crops: SquareCrop | RelativeCrop
    flip: bool
    opener: Opener
    augment: Change | None = None
    finishes: bool = True
    limit: TimeLimit = NO_LIMIT

    def __getitem__(self, request: ClipRequest) -> Clip:
        """Draw the clip of ``request``; a video that fails is replaced by a random one, MAX_ATTEMPTS at most.

        Raises nothing, because an error would end the loader's worker with a traceback.
        """
        unusable: list[tuple[int, str]] = []
        for attempt in range(MAX_ATTEMPTS):
            # Each attempt has a new generator. So the clip that replaces a failed video does
            # not depend on how many draws that video had made when it failed.
            rng = np.random.default_rng((*request.seed, attempt) if attempt else request.seed)
            index = int(rng.integers(len(self.records))) if attempt else request.index
            record = self.records[index]
            # The order of the draws is stride, start; short side, top, left; flip; augmentation. Another order
            # would change every clip of every seed. A part that is off draws nothing. A relative crop draws area,
            # aspect ratio, top and left in place of short side, top and left. The region is drawn in pixels of
            # the source, so no draw depends on the level of the store that gives the frames.
            try:
                with self.limit(record.path, request.seed), self.opener(record.path) as video:
                    duration = video.duration_seconds
                    start, end = stretch(record, duration)
                    times = start + draw_times(end - start, request, self.target_fps, rng)
                    short_side, cut = self.crops.draw(request.crop, rng)
                    shown = video.frames_at(times, short_side, cut)
                flipped = self.flip and bool(rng.random() < 0.5)
                # A clip longer than its video repeats the last frame, so its span ends with the video.
                span = float(times[0]), float(min(times[-1], duration))
                label = record.target(span, Shown(shown.size, shown.region, flipped))
            except VideoError as error:
                unusable.append((index, str(error)))
                continue
            self.limit.note([self.records[failed].path for failed, _ in unusable], request.seed)
            seed = 0 if self.augment is None else int(rng.integers(2**63))
            frames = torch.from_numpy(shown.pixels)
            if self.finishes:
                frames = finish(frames, request.crop, self.augment, seed)
            failed = tuple(unusable)
            return Clip(frames, label, index, failed, request.crop, seed, flipped)
        # -1: no class. collate sees that there are no frames, and then reads no label.
        empty = torch.empty(0, request.crop, request.crop, 3, dtype=torch.uint8)
        return Clip(empty, -1, request.index, tuple(unusable), request.crop)
