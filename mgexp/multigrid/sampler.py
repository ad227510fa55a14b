"""The clips that each step draws: one endless stream of permutations, cut into batches of any size.

Epoch e of the stream is a permutation of the videos, drawn from (seed, e). Batches are cut from the sequence of
all epochs and may straddle two of them. Nothing is dropped or padded, and without repeats nothing is drawn twice
within an epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import lru_cache

import torch

from mgexp.multigrid.batchnorm import num_running
from mgexp.multigrid.schedule import Schedule, StepPlan


@dataclass(frozen=True)
class ClipRequest:
    """One clip to draw from video ``index``: ``frames`` × ``crop`` × ``crop``.

    The stride is drawn from ``stride_range``. ``seed`` is (seed of the run, position in the
    stream). All draws for the clip follow from it. ``stride_range`` includes both ends; it is None
    for one frame from each segment of the video.
    """

    index: int
    frames: int
    crop: int
    stride_range: tuple[int, int] | None
    seed: tuple[int, int]


class Stream:
    """Indices of videos by position in the stream. ``position // num_videos`` is the epoch.

    With ``repeats`` r, each video is drawn r times in a row of 2 r clips, in turn with another one: a b a b c d
    c d. Neighbours, which mixup blends, are then different videos, unless an odd permutation ends with the first
    video of the next one. A permutation lasts for r epochs.

    With ``weights``, one for each video, an epoch is no permutation: each of its clips shows a video that is drawn
    with a probability in proportion to its weight.
    """

    def __init__(
        self, num_videos: int, seed: int, repeats: int = 1, weights: Sequence[float] | None = None
    ) -> None:
        self.num_videos = num_videos
        self.seed = seed
        self.repeats = repeats
        self.weights = weights
        # The cache holds two permutations, because a batch may contain clips of two epochs.
        self._permutation = lru_cache(maxsize=2)(self._draw)

    def index_at(self, position: int) -> int:
        # Without repeats this is the position itself.
        place = 2 * (position // (2 * self.repeats)) + position % 2
        epoch, offset = divmod(place, self.num_videos)
        return self._permutation(epoch)[offset]

    def requests(
        self, positions: Iterable[int], frames: int, crop: int, stride_range: tuple[int, int] | None
    ) -> list[ClipRequest]:
        return [
            ClipRequest(self.index_at(place), frames, crop, stride_range, (self.seed, place))
            for place in positions
        ]

    def _draw(self, epoch: int) -> list[int]:
        # We make one 63-bit seed from the two numbers, with odd constants of SplitMix64 (Steele et
        # al., 2014). A plain sum would give epoch 1 of seed 0 the same permutation as epoch 0 of
        # seed 1.
        mixed = self.seed * 0x9E3779B97F4A7C15 + epoch * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB
        mixed %= 2**64
        mixed ^= mixed >> 31
        # 63 bits are the same number with and without a sign, for every version of torch.
        generator = torch.Generator().manual_seed(mixed % 2**63)
        if self.weights is None:
            return torch.randperm(self.num_videos, generator=generator).tolist()
        shares = torch.tensor(self.weights, dtype=torch.float64)
        return torch.multinomial(shares, self.num_videos, True, generator=generator).tolist()


class StepSampler(Sized):
    """Iterate over the batches of one process, from ``first_step`` to the end of the schedule.

    Process ``rank`` takes the rank-th contiguous block of each global batch. So the clips of a
    global batch do not depend on the number of processes. Give the sampler to a DataLoader as its
    ``batch_sampler``. Raises ValueError for a rank that the schedule does not have, and if torch.distributed
    runs another number of processes.
    """

    # The sampler stores no position, because the loader reads ahead. Only the training loop knows
    # which steps are done, and a resumed run starts with that number as ``first_step``.

    def __init__(
        self,
        schedule: Schedule,
        seed: int,
        first_step: int = 0,
        rank: int = 0,
        repeats: int = 1,
        weights: Sequence[float] | None = None,
    ) -> None:
        if not 0 <= rank < schedule.num_processes:
            raise ValueError(
                f"rank = {rank}, but the schedule is one of {schedule.num_processes} processes: "
                "build_schedule(..., num_processes=...)"
            )
        if num_running() not in (0, schedule.num_processes):
            raise ValueError(
                f"torch.distributed runs {num_running()} processes, but the schedule is one of "
                f"{schedule.num_processes}: build_schedule(..., num_processes=...)"
            )
        self.schedule = schedule
        self.first_step = first_step
        self.rank = rank
        self.stream = Stream(schedule.num_videos, seed, repeats, weights)

    def __len__(self) -> int:
        return self.schedule.total_steps - self.first_step

    def __iter__(self) -> Iterator[list[ClipRequest]]:
        for step in range(self.first_step, self.schedule.total_steps):
            yield self.requests(self.schedule.plan_at(step))

    def requests(self, plan: StepPlan) -> list[ClipRequest]:
        """Return the clips of this process in one step."""
        # BN groups are contiguous too. So a group lies in one process, or in neighbours.
        share = plan.clips // self.schedule.num_processes
        first = plan.first_clip + self.rank * share
        positions = range(first, first + share)
        return self.stream.requests(positions, plan.frames, plan.crop, plan.stride_range)
