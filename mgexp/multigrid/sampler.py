"""Which clips a step draws: one endless stream of permutations, cut into batches of any size.

Epoch e of the stream is a permutation of the videos, drawn from (seed, e). Batches are cut from the sequence of
all epochs and may straddle two of them. Nothing is dropped, padded or drawn twice within an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from dataclasses import dataclass
from functools import lru_cache

import torch

from mgexp.multigrid.schedule import Schedule, StepPlan


@dataclass(frozen=True)
class ClipRequest:
    """One clip to draw: video ``index``, ``frames`` × ``crop`` × ``crop``, stride drawn from ``stride_range``.

    ``seed`` = (seed of the run, position in the stream): all draws for the clip follow from it.
    ``stride_range`` is inclusive, None for one frame from each segment of the video.
    """

    index: int
    frames: int
    crop: int
    stride_range: tuple[int, int] | None
    seed: tuple[int, int]


class Stream:
    """Indices of videos by position. ``position // num_videos`` is the epoch of the stream."""

    def __init__(self, num_videos: int, seed: int) -> None:
        self.num_videos = num_videos
        self.seed = seed
        # Two, because a batch may straddle two epochs.
        self._permutation = lru_cache(maxsize=2)(self._draw)

    def index_at(self, position: int) -> int:
        """Return the video at ``position`` of the stream."""
        epoch, offset = divmod(position, self.num_videos)
        return self._permutation(epoch)[offset]

    def _draw(self, epoch: int) -> list[int]:
        # Make one 63-bit seed of the two numbers, with odd constants of SplitMix64 (Steele et al., 2014). A plain
        # sum would give epoch 1 of seed 0 the same permutation as epoch 0 of seed 1.
        mixed = self.seed * 0x9E3779B97F4A7C15 + epoch * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB
        mixed %= 2**64
        mixed ^= mixed >> 31
        generator = torch.Generator().manual_seed(mixed % 2**63)
        return torch.randperm(self.num_videos, generator=generator).tolist()


class StepSampler(Sized):
    """Iterate over the batches of one process, from ``first_step`` to the end of the schedule.

    Process ``rank`` takes the rank-th contiguous block of each global batch, so that the draws do not depend on
    how many processes share them. A DataLoader takes it as its ``batch_sampler``. Raises ValueError for a
    process that the schedule does not have.
    """

    def __init__(self, schedule: Schedule, seed: int, first_step: int = 0, rank: int = 0) -> None:
        if not 0 <= rank < schedule.num_processes:
            raise ValueError(
                f"rank = {rank}, but the schedule is one of {schedule.num_processes} processes: "
                "build_schedule(..., num_processes=...)"
            )
        self.schedule = schedule
        self.first_step = first_step
        self.rank = rank
        self.stream = Stream(schedule.num_videos, seed)

    def __len__(self) -> int:
        """Count the steps that are left."""
        return self.schedule.total_steps - self.first_step

    def __iter__(self) -> Iterator[list[ClipRequest]]:
        for step in range(self.first_step, self.schedule.total_steps):
            yield self.requests(self.schedule.plan_at(step))

    def requests(self, plan: StepPlan) -> list[ClipRequest]:
        """Return the clips of this process in one step."""
        share = plan.clips // self.schedule.num_processes
        first = plan.first_clip + self.rank * share
        return [
            ClipRequest(
                index=self.stream.index_at(position),
                frames=plan.frames,
                crop=plan.crop,
                stride_range=plan.stride_range,
                seed=(self.stream.seed, position),
            )
            for position in range(first, first + share)
        ]
