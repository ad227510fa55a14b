"""Training clips: from a request to a random clip of a video, and from clips to a batch.

Every draw follows from the seed of the request, which names a position in the stream: the same request
gives the same clip in any process, at any time, whatever was loaded before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from mgexp.data.decode import VideoError, VideoReader, open_video
from mgexp.data.records import Record, Span, Target
from mgexp.data.sampling import Times, draw_stride, random_times, segment_times
from mgexp.data.transforms import FramesArray, crop_and_resize, horizontal_flip, random_region
from mgexp.errors import InputError

MAX_ATTEMPTS = 10
"""Videos tried for one clip. Assumption: ten in a row do not fail unless nearly all do."""

Opener = Callable[[str], AbstractContextManager[VideoReader]]
Unusable = tuple[tuple[int, str], ...]
"""(index of the record, what is wrong with it) of each video that failed."""


class Request(Protocol):
    """One clip to draw; see ``mgexp.multigrid.sampler.ClipRequest``, which this package must not know."""

    @property
    def index(self) -> int:
        """Which record."""

    @property
    def frames(self) -> int:
        """Frames of the clip."""

    @property
    def crop(self) -> int:
        """Height and width of the clip, in pixels."""

    @property
    def stride_range(self) -> tuple[int, int] | None:
        """Least and largest stride, both included; None: one frame from each segment of the video."""

    @property
    def seed(self) -> tuple[int, int]:
        """Seed of the run and position in the stream, neither negative."""


@dataclass(frozen=True)
class Clip:
    """One training clip: ``frames`` uint8 (T, S, S, 3), of record ``index``, and the ``label`` of its span.

    ``index`` is not the requested one if videos failed: those are in ``unusable``, in the order tried.
    If all did, there are no frames: (0, S, S, 3).
    """

    frames: Tensor
    label: Target
    index: int
    unusable: Unusable


@dataclass(frozen=True)
class Batch:
    """``clips`` uint8 (B, 3, T, S, S) in channels_last_3d memory, ``labels`` int64 (B,).

    Where videos have many labels, ``labels`` is float32 (B, classes): 1 for those shown in the clip, else 0.

    ``unusable``: the videos that failed and were replaced, of all its clips. B is 0 where a clip found no
    video that did not fail.
    """

    clips: Tensor
    labels: Tensor
    unusable: Unusable

    def pin_memory(self) -> Batch:
        """The same batch in page-locked memory; a DataLoader with ``pin_memory=True`` calls this."""
        return replace(self, clips=self.clips.pin_memory(), labels=self.labels.pin_memory())


class TrainingClips(Dataset[Clip]):
    """Random clips of videos, one for each ``Request``.

    ``jitter``: least and largest short side, in pixels, at the full crop. For a smaller crop the least is
    scaled by crop / ``full_crop``, the largest is not (released code, slowfast/datasets/kinetics.py; it
    rounds the least, we do not). ``flip``: mirror every second clip, at random.
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
        opener: Opener = open_video,
    ) -> None:
        if not full_crop <= jitter[0] <= jitter[1]:
            raise InputError(
                [
                    f"short sides are drawn from {jitter[0]} to {jitter[1]} pixels, but the crop is {full_crop}: "
                    "give the least first, and none below the crop"
                ]
            )
        self.records = records
        self.target_fps = target_fps
        self.jitter = jitter
        self.full_crop = full_crop
        self.inverse_uniform = inverse_uniform
        self.flip = flip
        self.opener = opener

    def __getitem__(self, request: Request) -> Clip:
        """The clip of ``request``; a video that fails is replaced by a random one, MAX_ATTEMPTS times at most.

        Raises nothing: an error would leave a loader's worker as a traceback.
        """
        unusable: list[tuple[int, str]] = []
        for attempt in range(MAX_ATTEMPTS):
            index, rng = self._draw_index(request, attempt)
            try:
                frames, span = self._draw_frames(self.records[index].path, request, rng)
            except VideoError as error:
                unusable.append((index, str(error)))
                continue
            return Clip(frames, self.records[index].target(span), index, tuple(unusable))
        empty = torch.empty(0, request.crop, request.crop, 3, dtype=torch.uint8)
        return Clip(empty, -1, request.index, tuple(unusable))

    def _draw_index(self, request: Request, attempt: int) -> tuple[int, np.random.Generator]:
        """Which record to try, and the generator of all further draws for it."""
        if attempt == 0:
            return request.index, np.random.default_rng(request.seed)
        rng = np.random.default_rng((*request.seed, attempt))
        return int(rng.integers(len(self.records))), rng

    def _draw_frames(
        self, path: str, request: Request, rng: np.random.Generator
    ) -> tuple[Tensor, Span]:
        """A random clip of one video, (T, S, S, 3), and its span, that ends with the video at the latest.

        Draws: stride, start; short side, top, left; flip.
        """
        with self.opener(path) as reader:
            times = self._draw_times(reader.duration_seconds, request, rng)
            frames = reader.frames_at(times)
            span = float(times[0]), float(min(times[-1], reader.duration_seconds))
        clip = self._draw_crop(frames, request.crop, rng)
        return horizontal_flip(clip) if self.flip and rng.random() < 0.5 else clip, span

    def _draw_times(
        self, duration_seconds: float, request: Request, rng: np.random.Generator
    ) -> Times:
        if request.stride_range is None:
            return segment_times(duration_seconds, request.frames, rng)
        stride = draw_stride(request.stride_range, rng)
        return random_times(duration_seconds, request.frames, stride, self.target_fps, rng)

    def _draw_crop(self, frames: FramesArray, crop: int, rng: np.random.Generator) -> Tensor:
        _, height, width, _ = frames.shape
        least, largest = self.jitter
        scaled = least * crop / self.full_crop
        region = random_region(height, width, crop, scaled, largest, self.inverse_uniform, rng)
        return crop_and_resize(frames, region, crop)


def collate(clips: Sequence[Clip]) -> Batch:
    """One batch of clips of one shape; no clips if one of them has no frames."""
    unusable = tuple(failure for clip in clips for failure in clip.unusable)
    if not all(len(clip.frames) for clip in clips):
        none = torch.empty(0, 3, 0, 0, 0, dtype=torch.uint8)
        return Batch(none, torch.empty(0, dtype=torch.long), unusable)
    return Batch(
        # Channels are last in the stack: the permuted view is channels_last_3d without a copy.
        clips=torch.stack([clip.frames for clip in clips]).permute(0, 4, 1, 2, 3),
        labels=torch.tensor([clip.label for clip in clips]),  # of floats for many labels
        unusable=unusable,
    )
