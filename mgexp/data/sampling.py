"""Which moments of a video a clip shows, in seconds.

A stride counts frames of a grid of ``target_fps``, whatever the frame rate of the file, so that the same
stride spans the same time in every video. The reader shows, at each moment, the frame on screen then;
past the end of the video, the last one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
"""Moments in seconds from the start of the video, one for each frame of a clip."""


def draw_stride(stride_range: tuple[int, int], rng: np.random.Generator) -> int:
    """A whole stride, uniform over ``stride_range``, both ends included.

    Source: released code, slowfast/datasets/utils.py, get_random_sampling_rate.
    """
    first, last = stride_range
    return int(rng.integers(first, last + 1))


def random_times(
    duration_seconds: float, frames: int, stride: int, target_fps: float, rng: np.random.Generator
) -> Times:
    """``frames`` moments, ``stride`` grid frames apart, from a random start.

    The start is uniform over those with all moments in [0, duration), so the last frame of a video is
    drawn as often as any other; it is 0 if the clip is longer than the video.
    """
    steps = _grid_steps(frames, stride, target_fps)
    latest_start = max(0.0, duration_seconds - float(steps[-1]))
    return steps + rng.uniform(0.0, latest_start)


def view_times(
    duration_seconds: float, frames: int, stride: int, target_fps: float, view: int, num_views: int
) -> Times:
    """``frames`` moments of view number ``view``, of ``num_views`` evenly spaced; a single view is the centre.

    The first view starts with the video, the last ends with it: its span of stride*(frames-1)+1 grid
    frames fills the video to the end. All start at 0 if the clip is longer than the video.
    Source: released code, slowfast/datasets/decoder.py, get_start_end_idx.
    """
    _check_view(view, num_views)
    steps = _grid_steps(frames, stride, target_fps)
    span_seconds = float(steps[-1]) + 1.0 / target_fps
    room_seconds = max(0.0, duration_seconds - span_seconds)
    share = view / (num_views - 1) if num_views > 1 else 0.5
    return steps + room_seconds * share


def segment_times(
    duration_seconds: float, frames: int, rng: np.random.Generator | None = None
) -> Times:
    """One moment from each of ``frames`` equal segments of the video: random with ``rng``, else the middle.

    Source: released code, slowfast/datasets/ssv2.py, get_seq_frames (it draws whole frames).
    """
    within = rng.random(frames) if rng is not None else 0.5
    return (np.arange(frames, dtype=np.float64) + within) * (duration_seconds / frames)


def _grid_steps(frames: int, stride: int, target_fps: float) -> Times:
    """Seconds from the first frame of a clip to each of its frames."""
    return np.arange(frames, dtype=np.float64) * (stride / target_fps)


def _check_view(view: int, num_views: int) -> None:
    if not 0 <= view < num_views:
        raise ValueError(f"view {view} does not exist: views are 0 to {num_views - 1}")
