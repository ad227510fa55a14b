"""Training clips: from a request to a random clip of a video.

Every draw follows from the seed of the request, which names a position in the stream. So the same request gives
the same clip in any process, at any time, whatever was loaded before it.

A stride counts frames on a grid of ``target_fps``, whatever the frame rate of the file is. So a
stride spans the same time in every video. For each moment, the reader gives the frame that is on
display at that moment. After the end of the video it gives the last frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from mgexp.data.crops import Change, RelativeCrop, SquareCrop, finish
from mgexp.data.records import Record, Target
from mgexp.data.time_limit import NO_LIMIT, TimeLimit
from mgexp.multigrid.sampler import ClipRequest
from mgexp.video.reader import SOURCE, Opener, VideoError

Times = NDArray[np.float64]
"""Moments in seconds from the start of the video, one for each frame of a clip."""

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
    """Return one moment in each of ``frames`` equal segments of the video: random if ``rng`` is given.

    Without ``rng``, it is the middle of the segment.

    Source: released code, slowfast/datasets/ssv2.py, get_seq_frames (it draws whole frames).
    """
    within = rng.random(frames) if rng is not None else 0.5
    return (np.arange(frames, dtype=np.float64) + within) * (duration_seconds / frames)


@dataclass(frozen=True)
class Clip:
    """One training clip: ``frames`` uint8 (T, S, S, 3) of record ``index``, and the ``label`` of its span.

    If the clip is not finished, ``frames`` has the region (T, h, w, 3) of the video instead. ``crop`` is S, and
    ``seed`` the draw of the augmentation, for ``finish``.

    ``flipped``: whether the network gets the clip mirrored, left for right. It is drawn here, with everything
    else, but ``mgexp.train.step.Normalizer`` mirrors the clip on the device, where it costs a GPU nothing. Here it
    would make a worker up to 2 % slower (measured, every second clip: 0.03 ms for 8 × 112², 0.6 ms for 32 × 224²).

    If videos failed, ``index`` is the record that replaced them, and ``unusable`` has them in the
    order of the attempts. If all attempts failed, there are no frames: (0, S, S, 3). ``level``: the
    copy of the video that gave the frames; see ``video.reader.Frames``.
    """

    frames: Tensor
    label: Target
    index: int
    unusable: Unusable
    crop: int
    seed: int = 0
    level: str = SOURCE
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
                    start, end = record.part or (0.0, duration)
                    if start >= duration:
                        raise VideoError(record.path, f"ends before the stretch at {start:g} s")
                    times = start + draw_times(
                        min(end, duration) - start, request, self.target_fps, rng
                    )
                    shown = video.frames_at(times, *self.crops.draw(request.crop, rng))
            except VideoError as error:
                unusable.append((index, str(error)))
                continue
            self.limit.note([self.records[failed].path for failed, _ in unusable], request.seed)
            flipped = self.flip and bool(rng.random() < 0.5)
            seed = 0 if self.augment is None else int(rng.integers(2**63))
            frames = torch.from_numpy(shown.pixels)
            if self.finishes:
                frames = finish(frames, request.crop, self.augment, seed)
            # A clip longer than its video repeats the last frame, so its span ends with the video.
            span = float(times[0]), float(min(times[-1], duration))
            failed = tuple(unusable)
            label, level = record.target(span), shown.level
            return Clip(frames, label, index, failed, request.crop, seed, level, flipped)
        # -1: no class. collate sees that there are no frames, and then reads no label.
        empty = torch.empty(0, request.crop, request.crop, 3, dtype=torch.uint8)
        return Clip(empty, -1, request.index, tuple(unusable), request.crop)
