"""Seconds to load clips in one process and one thread, in several ways, side by side."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from tqdm import tqdm

from mgexp.data.clips import TrainingClips
from mgexp.data.decode import VideoError
from mgexp.multigrid.sampler import ClipRequest
from mgexp.plan.loading import Kind

Load = Callable[[ClipRequest], object]
"""Loads one clip; raises where that fails."""


@dataclass(frozen=True)
class Timings:
    """Seconds per clip of one way to load: by kind, a mean over the videos for each repeat."""

    by_kind: Mapping[Kind, tuple[float, ...]]

    @property
    def num_repeats(self) -> int:
        """How often each kind was measured."""
        return min(len(values) for values in self.by_kind.values())

    def repeat(self, number: int) -> dict[Kind, float]:
        """One measurement."""
        return {kind: values[number] for kind, values in self.by_kind.items()}

    def median(self) -> dict[Kind, float]:
        """Over the repeats."""
        return {kind: statistics.median(values) for kind, values in self.by_kind.items()}


def measure(
    ways: Mapping[str, Load],
    kinds: Sequence[Kind],
    num_videos: int,
    num_repeats: int,
    progress: bool = False,
) -> dict[str, Timings]:
    """Times every way on the same requests: a clip of each of ``num_videos`` for each kind and repeat.

    The ways take turns, and the order of turns is reversed from repeat to repeat, so that a machine that gets
    slower or faster does so for all. Before, each loads one clip of each video: files are in memory by then.
    ``progress`` shows a bar on a terminal. Raises what a way raises.
    """
    for load in ways.values():
        _seconds(load, _requests(kinds[0], num_videos, num_repeats))
    found: dict[str, dict[Kind, list[float]]] = {
        name: {kind: [] for kind in kinds} for name in ways
    }
    turns = [(number, kind) for number in range(num_repeats) for kind in kinds]
    # None: a bar on a terminal alone.
    for number, kind in tqdm(turns, desc="loading", disable=None if progress else True):
        requests = _requests(kind, num_videos, number)
        for name in list(ways)[:: -1 if number % 2 else 1]:
            found[name][kind].append(_seconds(ways[name], requests))
    return {
        name: Timings({kind: tuple(values) for kind, values in by_kind.items()})
        for name, by_kind in found.items()
    }


def loader_of(clips: TrainingClips) -> Load:
    """The way in which training loads its clips; raises VideoError for a video that fails."""

    def load(request: ClipRequest) -> None:
        clip = clips[request]
        if clip.unusable:
            index, reason = clip.unusable[0]
            raise VideoError(clips.records[index].path, f"cannot be measured: {reason}")

    return load


@contextmanager
def one_core() -> Iterator[None]:
    """This process on one core, any, where the system can do that, and torch in one thread, as a worker is."""
    threads, can_pin = torch.get_num_threads(), hasattr(os, "sched_setaffinity")
    cores = os.sched_getaffinity(0) if can_pin else set()
    torch.set_num_threads(1)
    if can_pin:  # Linux
        os.sched_setaffinity(0, {random.choice([*cores])})
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if can_pin:
            os.sched_setaffinity(0, cores)


def _requests(kind: Kind, num_videos: int, repeat: int) -> list[ClipRequest]:
    frames, crop, stride_range = kind
    return [
        ClipRequest(video, frames, crop, stride_range, (repeat, video))
        for video in range(num_videos)
    ]


def _seconds(load: Load, requests: Sequence[ClipRequest]) -> float:
    start = time.perf_counter()
    for request in requests:
        load(request)
    return (time.perf_counter() - start) / len(requests)
