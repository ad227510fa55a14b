"""Evaluation views: fixed clips of every video, the same in every evaluation.

A video that fails is not replaced by another one. Its view holds an error instead of frames, so
that one evaluation can list all failures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from mgexp.data.clips import Times, finish, segment_times, stretch
from mgexp.data.records import Record, Shown, Target
from mgexp.data.time_limit import NO_LIMIT, TimeLimit
from mgexp.video.reader import Opener, Region, VideoError, whole

FrameOrder = Literal["forward", "repeated", "shuffled", "reversed"]
"""The order of the frames. Three controls show how much a network uses time: ``repeated`` shows the middle frame
at all times, ``shuffled`` shows the frames in random order, and ``reversed`` shows the last frame first."""


def view_times(
    duration_seconds: float, frames: int, stride: int, target_fps: float, view: int, num_views: int
) -> Times:
    """Return the moments of view number ``view`` out of ``num_views`` evenly spaced ones; one view is the centre.

    The first view starts with the video and the last view ends with it: its span of stride*(frames-1)+1 grid
    frames reaches the end of the video. All views start at 0 if the clip is longer than the video.
    Source: released code, slowfast/datasets/decoder.py, get_start_end_idx.
    """
    steps = np.arange(frames, dtype=np.float64) * (stride / target_fps)
    # As in the released code, one grid frame is counted for the last moment, so that the last view
    # ends with the video. Training counts none: see ``draw_times``.
    span_seconds = float(steps[-1]) + 1.0 / target_fps
    room_seconds = max(0.0, duration_seconds - span_seconds)
    share = view / (num_views - 1) if num_views > 1 else 0.5
    return steps + room_seconds * share


def view_region(height: int, width: int, index: int, num: int) -> Region:
    """Return square number ``index`` out of ``num`` evenly spaced along the long side of a frame.

    One square is the centre; three are left, centre, right, or top, centre, bottom of an upright video.
    Source: released code, slowfast/datasets/transform.py, uniform_crop, whose crop is the whole short side too.
    """
    side = min(height, width)
    room = max(height, width) - side
    offset = room * index // (num - 1) if num > 1 else room // 2
    return Region(offset, 0, side, side) if height > width else Region(0, offset, side, side)


@dataclass(frozen=True)
class View:
    """All crops of one temporal view: ``frames`` uint8 (num_crops, T, S, S, 3), of record ``video``.

    ``label`` belongs to the whole video. If the video failed, ``error`` says why and ``frames`` has no crops:
    (0, T, S, S, 3).
    """

    frames: Tensor
    video: int
    label: Target
    error: str | None


class ViewBatch(NamedTuple):
    """``clips`` uint8 (N, 3, T, S, S) in channels_last_3d memory; ``videos`` and ``labels`` int64 (N,).

    If videos have many labels, ``labels`` is float32 (N, classes), with 1 for each class of the
    video and 0 for the others.
    Clip i is one crop of one view of record ``videos[i]``. ``errors``: (record, reason) of each view that failed.
    Such a view has no clips, so N may be 0. A video with many views is named once for each of them.
    """

    clips: Tensor
    videos: Tensor
    labels: Tensor
    errors: tuple[tuple[int, str], ...]


@dataclass(eq=False)
class EvaluationViews(Dataset[View]):
    """``num_views`` temporal views of each video, with ``num_crops`` crops of each view.

    Item i is view i % num_views of record i // num_views. All its crops come from one decoding. If
    ``stride`` is None, the one view shows the middle frame of each of ``frames`` segments of the video.
    Frames are resized to a short side of ``crop`` pixels, so a crop shows all of the short side. With
    ``are_whole``, the one crop is the whole frame, stretched to a square.
    ``limit``: the time that a video may take.
    """

    records: Sequence[Record]
    _: KW_ONLY
    frames: int
    stride: int | None
    crop: int
    target_fps: float
    num_views: int
    num_crops: int
    opener: Opener
    frame_order: FrameOrder = "forward"
    are_whole: bool = False
    limit: TimeLimit = NO_LIMIT

    def __len__(self) -> int:
        return len(self.records) * self.num_views

    def __getitem__(self, item: int) -> View:
        index, view = divmod(item, self.num_views)
        record = self.records[index]
        try:
            with self.limit(record.path), self.opener(record.path) as video:
                duration = video.duration_seconds
                start, end = stretch(record, duration)
                if self.stride is None:
                    times = segment_times(end - start, self.frames)
                else:
                    clip = (self.frames, self.stride, self.target_fps)
                    times = view_times(end - start, *clip, view, self.num_views)
                # Near the end of the video, a clip that is longer than its part begins earlier.
                start = max(0.0, min(start, duration - times[-1]))
                # The whole picture is converted once, because the regions of the crops overlap.
                shown = video.frames_at(start + times, self.crop)
                frames = shown.pixels
            label = record.target(None, Shown(shown.size, whole(shown.size), False))
        except VideoError as error:
            nothing = torch.empty((0, self.frames, self.crop, self.crop, 3), dtype=torch.uint8)
            return View(nothing, index, record.target(), str(error))
        if self.frame_order == "repeated":
            frames = frames[[self.frames // 2] * self.frames]
        elif self.frame_order == "shuffled":
            # The index of the video is the seed, so all its views, in every evaluation, have the
            # same order.
            frames = frames[np.random.default_rng(index).permutation(self.frames)]
        elif self.frame_order == "reversed":
            # torch cannot read an array whose strides are negative.
            frames = frames[::-1].copy()
        copy_size = (frames.shape[1], frames.shape[2])
        crops = []
        for number in range(self.num_crops):
            region = whole(shown.size)
            if not self.are_whole:
                region = view_region(*shown.size, number, self.num_crops)
            region = region.on(shown.size, copy_size)
            pixels = torch.from_numpy(frames[:, region.rows, region.columns])
            crops.append(finish(pixels, self.crop))
        return View(torch.stack(crops), index, label, None)


def collate_views(views: Sequence[View]) -> ViewBatch:
    # A view that failed has no crops, so it adds no clip, no video and no label.
    num_crops = torch.tensor([len(view.frames) for view in views])
    return ViewBatch(
        # Channels are last in memory: the permuted view is channels_last_3d without a copy.
        clips=torch.cat([view.frames for view in views]).permute(0, 4, 1, 2, 3),
        videos=torch.tensor([view.video for view in views]).repeat_interleave(num_crops),
        labels=torch.tensor([view.label for view in views]).repeat_interleave(num_crops, dim=0),
        errors=tuple((view.video, view.error) for view in views if view.error is not None),
    )
