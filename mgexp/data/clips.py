"""Training clips: from a request to a random clip of a video, and from clips to a batch.

Every draw follows from the seed of the request, which names a position in the stream: the same request
gives the same clip in any process, at any time, whatever was loaded before it.

A stride counts frames on a grid of ``target_fps``, whatever the frame rate of the file. So the same stride spans
the same time in every video. For each moment the reader gives the frame that is on screen then, and after the
end of the video the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from mgexp.data.records import Record, Target
from mgexp.data.time_limit import NO_LIMIT, TimeLimit
from mgexp.data.transforms import draw_short_side, random_region, resize
from mgexp.errors import InputError
from mgexp.multigrid.sampler import ClipRequest
from mgexp.video.reader import SOURCE, Opener, VideoError, open_video

Times = NDArray[np.float64]
"""Moments in seconds from the start of the video, one for each frame of a clip."""

MAX_ATTEMPTS = 10
"""Videos tried for one clip. Assumption: ten in a row do not fail unless nearly all do."""

Unusable = tuple[tuple[int, str], ...]
"""(index of the record, what is wrong with it) of each video that failed."""

Change = Callable[[Tensor, np.random.Generator], Tensor]
"""Changes the frames of a clip, uint8 (T, S, S, 3), by draws from a generator: see ``mgexp/data/augment.py``."""


def draw_stride(stride_range: tuple[int, int], rng: np.random.Generator) -> int:
    """Draw a whole stride, uniform over ``stride_range``, both ends included.

    Source: released code, slowfast/datasets/utils.py, get_random_sampling_rate.
    """
    first, last = stride_range
    return int(rng.integers(first, last + 1))


def random_times(
    duration_seconds: float, frames: int, stride: int, target_fps: float, rng: np.random.Generator
) -> Times:
    """Draw ``frames`` moments, ``stride`` grid frames apart, from a random start.

    The start is uniform over those with all moments in [0, duration), so the last frame of a video is
    drawn as often as any other; it is 0 if the clip is longer than the video.
    """
    steps = _grid_steps(frames, stride, target_fps)
    latest_start = max(0.0, duration_seconds - float(steps[-1]))
    return steps + rng.uniform(0.0, latest_start)


def view_times(
    duration_seconds: float, frames: int, stride: int, target_fps: float, view: int, num_views: int
) -> Times:
    """Return ``frames`` moments of view number ``view``, of ``num_views`` evenly spaced; one view is the centre.

    The first view starts with the video, the last ends with it: its span of stride*(frames-1)+1 grid
    frames fills the video to the end. All start at 0 if the clip is longer than the video.
    Source: released code, slowfast/datasets/decoder.py, get_start_end_idx.
    """
    if not 0 <= view < num_views:
        raise ValueError(f"view {view} does not exist: views are 0 to {num_views - 1}")
    steps = _grid_steps(frames, stride, target_fps)
    span_seconds = float(steps[-1]) + 1.0 / target_fps
    room_seconds = max(0.0, duration_seconds - span_seconds)
    share = view / (num_views - 1) if num_views > 1 else 0.5
    return steps + room_seconds * share


def segment_times(
    duration_seconds: float, frames: int, rng: np.random.Generator | None = None
) -> Times:
    """Return one moment of each of ``frames`` equal segments of the video: random with ``rng``, else the middle.

    Source: released code, slowfast/datasets/ssv2.py, get_seq_frames (it draws whole frames).
    """
    within = rng.random(frames) if rng is not None else 0.5
    return (np.arange(frames, dtype=np.float64) + within) * (duration_seconds / frames)


def _grid_steps(frames: int, stride: int, target_fps: float) -> Times:
    """Return the seconds from the first frame of a clip to each of its frames."""
    return np.arange(frames, dtype=np.float64) * (stride / target_fps)


@dataclass(frozen=True)
class Clip:
    """One training clip: ``frames`` uint8 (T, S, S, 3), of record ``index``, and the ``label`` of its span.

    ``flipped``: the network is to see it mirrored, left for right. The flip is drawn here with everything else,
    and ``mgexp.train.step.Normalizer`` does it where the batch is trained: a GPU does it for nothing, and here it
    would make a worker up to 2 % slower (measured, every second clip: 0.03 ms for 8 × 112², 0.6 ms for 32 × 224²).

    ``index`` is not the requested one if videos failed: those are in ``unusable``, in the order tried.
    If all did, there are no frames: (0, S, S, 3). ``level``: where they come from, see ``video.reader.Frames``.
    """

    frames: Tensor
    label: Target
    index: int
    unusable: Unusable
    level: str = SOURCE
    flipped: bool = False


@dataclass(frozen=True)
class Batch:
    """``clips`` uint8 (B, 3, T, S, S) in channels_last_3d memory, ``labels`` int64 (B,).

    Where videos have many labels, ``labels`` is float32 (B, classes): 1 for those shown in the clip, else 0.
    ``flipped`` (B,): which clips are to be shown left for right; None where none is.

    ``unusable``: the videos that failed and were replaced, of all its clips. B is 0 where a clip found no
    video that did not fail. ``levels``: how many clips come from each level of the store, or the source.
    """

    clips: Tensor
    labels: Tensor
    unusable: Unusable
    levels: Mapping[str, int] = field(default_factory=dict)
    flipped: Tensor | None = None

    def pin_memory(self) -> Batch:
        """Return the same batch in page-locked memory; a DataLoader with ``pin_memory=True`` calls this."""
        return self.map(lambda tensor: tensor.pin_memory())

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Return the batch with every tensor changed."""
        return replace(
            self,
            clips=change(self.clips),
            labels=change(self.labels),
            flipped=None if self.flipped is None else change(self.flipped),
        )

    def tensors(self) -> list[Tensor]:
        """Return all tensors."""
        return [self.clips, self.labels, *([] if self.flipped is None else [self.flipped])]


class TrainingClips(Dataset[Clip]):
    """Random clips of videos, one for each ``ClipRequest``.

    ``jitter``: least and largest short side, in pixels, at the full crop. For a smaller crop the least is
    scaled by crop / ``full_crop``, the largest is not (released code, slowfast/datasets/kinetics.py; it
    rounds the least, we do not). ``flip``: mirror every second clip, at random. ``augment``: what else is done to
    a clip; None: nothing. ``limit``: the time that a video may take.
    Raises InputError for a jitter that cannot hold the crop.
    """

    def __init__(
        self,
        records: Sequence[Record],
        *,
        target_fps: float,
        jitter: tuple[int, int],
        full_crop: int,
        inverse_uniform: bool,
        flip: bool,
        augment: Change | None = None,
        opener: Opener = open_video,
        limit: TimeLimit = NO_LIMIT,
    ) -> None:
        if not full_crop <= jitter[0] <= jitter[1]:
            drawn = f"short sides are drawn from {jitter[0]} to {jitter[1]} pixels"
            remedy = "give the least first, and none below the crop"
            raise InputError([f"{drawn}, but the crop is {full_crop}: {remedy}"])
        self.records = records
        self.target_fps = target_fps
        self.jitter = jitter
        self.full_crop = full_crop
        self.inverse_uniform = inverse_uniform
        self.flip = flip
        self.augment = augment
        self.opener = opener
        self.limit = limit

    def __getitem__(self, request: ClipRequest) -> Clip:
        """Return the clip of ``request``; a video that fails is replaced by a random one, MAX_ATTEMPTS at most.

        Raises nothing: an error would leave a loader's worker as a traceback.
        """
        unusable: list[tuple[int, str]] = []
        for attempt in range(MAX_ATTEMPTS):
            if attempt == 0:
                index, rng = request.index, np.random.default_rng(request.seed)
            else:
                rng = np.random.default_rng((*request.seed, attempt))
                index = int(rng.integers(len(self.records)))
            try:
                return self._draw_clip(index, request, rng, tuple(unusable))
            except VideoError as error:
                unusable.append((index, str(error)))
        empty = torch.empty(0, request.crop, request.crop, 3, dtype=torch.uint8)
        return Clip(empty, -1, request.index, tuple(unusable))

    def _draw_clip(
        self, index: int, request: ClipRequest, rng: np.random.Generator, unusable: Unusable
    ) -> Clip:
        """Draw a random clip of record ``index``; its span ends with the video at the latest.

        Draws: stride, start; short side, top, left; flip; augmentation. None depends on the level that the frames
        come from: the region is drawn in pixels of the source. What is off draws nothing.
        """
        record = self.records[index]
        with self.limit(record.path, request.seed), self.opener(record.path) as video:
            times = self.draw_times(video.duration_seconds, request, rng)
            span = float(times[0]), float(min(times[-1], video.duration_seconds))
            short_side = self.draw_short_side(request.crop, rng)
            found = video.frames_at(times, short_side)
            pixels = found.rgb(random_region(*found.size, request.crop, short_side, rng))
        frames = resize(pixels, request.crop)
        flipped = self.flip and bool(rng.random() < 0.5)
        if self.augment is not None:
            frames = self.augment(frames, rng)
        return Clip(frames, record.target(span), index, unusable, found.level, flipped)

    def draw_times(
        self, duration_seconds: float, request: ClipRequest, rng: np.random.Generator
    ) -> Times:
        """Draw the moments that the clip of ``request`` shows: stride, start; or one moment in each segment."""
        if request.stride_range is None:
            return segment_times(duration_seconds, request.frames, rng)
        stride = draw_stride(request.stride_range, rng)
        return random_times(duration_seconds, request.frames, stride, self.target_fps, rng)

    def draw_short_side(self, crop: int, rng: np.random.Generator) -> float:
        """Draw the short side, in pixels, that pictures are resized to before a crop is cut from them."""
        least, largest = self.jitter
        scaled = least * crop / self.full_crop
        return draw_short_side(crop, scaled, largest, self.inverse_uniform, rng)


def collate(clips: Sequence[Clip]) -> Batch:
    """Make one batch of clips of one shape; it has no clips if one of them has no frames."""
    unusable = tuple(failure for clip in clips for failure in clip.unusable)
    if not all(len(clip.frames) for clip in clips):
        none = torch.empty(0, 3, 0, 0, 0, dtype=torch.uint8)
        return Batch(none, torch.empty(0, dtype=torch.long), unusable)
    flipped = [clip.flipped for clip in clips]
    return Batch(
        # Channels are last in the stack: the permuted view is channels_last_3d without a copy.
        clips=torch.stack([clip.frames for clip in clips]).permute(0, 4, 1, 2, 3),
        labels=torch.tensor([clip.label for clip in clips]),  # of floats for many labels
        unusable=unusable,
        levels=dict(Counter(clip.level for clip in clips)),
        flipped=torch.tensor(flipped) if any(flipped) else None,
    )
