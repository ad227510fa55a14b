"""The cost of loading a schedule: kinds of clips, and their seconds on one core."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from mgexp.data.clips import TrainingClips
from mgexp.multigrid.phases import Phase
from mgexp.multigrid.sampler import ClipRequest
from mgexp.multigrid.schedule import Schedule
from mgexp.multigrid.shapes import Cycle
from mgexp.run.log import progress_bar
from mgexp.video.reader import VideoError

StrideRange = tuple[int, int] | None
Kind = tuple[int, int, StrideRange]
"""(frames, crop, stride range): the cost of a clip depends on these three."""

Load = Callable[[ClipRequest], object]
"""A way to load: it loads one clip, and raises an error where that fails."""


@dataclass(frozen=True)
class PhaseLoad:
    """All phases of a schedule that load the same kinds of clips; these phases differ in learning rate alone.

    ``clips_per_step``: the clips of all processes together, as a mean over the cycle.
    """

    cycle: Cycle
    stride_range: StrideRange
    num_steps: int
    clips_per_step: float

    def clips_of(self) -> dict[Kind, float]:
        """Count the clips of each kind in a step, as a mean over the cycle."""
        clips: dict[Kind, float] = {}
        for shape in self.cycle.shapes:
            kind = (shape.frames, shape.crop, self.stride_range)
            share = shape.ratio / sum(other.ratio for other in self.cycle.shapes)
            clips[kind] = clips.get(kind, 0.0) + share * self.clips_per_step
        return clips

    def core_seconds_per_step(self, seconds: Mapping[Kind, float]) -> float:
        """Sum the core seconds of the clips of a step. ``seconds``: core seconds of a clip of each kind."""
        return sum(clips * seconds[kind] for kind, clips in self.clips_of().items())


def phase_loads(schedule: Schedule) -> tuple[PhaseLoad, ...]:
    """Join phases with the same cycle and strides, ordered by the first of them."""
    order: dict[tuple[Cycle, StrideRange], list[Phase]] = {}
    for phase in schedule.phases:
        order.setdefault((phase.cycle, phase.stride_range), []).append(phase)
    clips = schedule.recipe.clips
    return tuple(
        PhaseLoad(
            cycle, strides, sum(phase.num_steps for phase in phases), clips * cycle.mean_ratio
        )
        for (cycle, strides), phases in order.items()
    )


def kinds_of(loads: Iterable[PhaseLoad]) -> tuple[Kind, ...]:
    return tuple(dict.fromkeys(kind for load in loads for kind in load.clips_of()))


def measure(
    ways: Mapping[str, Load],
    kinds: Sequence[Kind],
    num_videos: int,
    num_repeats: int = 1,
    progress: bool = False,
) -> dict[str, dict[Kind, list[float]]]:
    """Time every way to load on the same clips: in each repeat, one clip of each kind from each video."""

    def mean_seconds(load: Load, kind: Kind, repeat: int) -> float:
        frames, crop, stride_range = kind
        # The seed of a request does not depend on the way. So all ways load the same clips.
        requests = [
            ClipRequest(video, frames, crop, stride_range, (repeat, video))
            for video in range(num_videos)
        ]
        start = time.perf_counter()
        for request in requests:
            load(request)
        return (time.perf_counter() - start) / num_videos

    # Load one clip of each video first. After that, the system holds the files in memory, so the
    # disk is not timed.
    for load in ways.values():
        mean_seconds(load, kinds[0], num_repeats)
    seconds: dict[str, dict[Kind, list[float]]] = {
        name: {kind: [] for kind in kinds} for name in ways
    }
    total, unit = num_repeats * len(kinds), " kinds of clips"
    with progress_bar(total, unit, desc="loading", is_shown=progress) as bar:
        for number in range(num_repeats):
            for kind in kinds:
                for name in in_turn(ways, number):
                    seconds[name][kind].append(mean_seconds(ways[name], kind, number))
                bar.update()
    return seconds


def in_turn(ways: Iterable[str], number: int) -> list[str]:
    """Reverse the names in every second repeat, so that a machine that gets slower slows all ways equally."""
    return list(ways)[:: -1 if number % 2 else 1]


def loader_of(clips: TrainingClips) -> Load:
    """Return a way that loads ``clips`` as training does, but raises VideoError where a video fails."""

    def load(request: ClipRequest) -> None:
        clip = clips[request]
        # Training replaces a broken video by another one. Here that would time the wrong clip.
        if clip.unusable:
            index, reason = clip.unusable[0]
            raise VideoError(clips.records[index].path, f"cannot be measured: {reason}")

    return load


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this process on one core and torch in one thread, as in a loader worker."""
    # Otherwise FFmpeg and torch could use several cores, and the seconds would not be core seconds.
    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    torch.set_num_threads(1)
    # The core is random, because all processes of a run may time clips at once. A fixed core would
    # then be the core of all of them.
    os.sched_setaffinity(0, {random.choice([*cores])})
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        os.sched_setaffinity(0, cores)
