"""Load the schedules of rows from their YAMLs, with the cost of each shape."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgexp.config.keys import Config
from mgexp.config.load import flatten, load_config
from mgexp.errors import InputError
from mgexp.models.build import build_network, channels_last
from mgexp.models.cost import FLOPS_PER_MAC, TRAINING_PER_FORWARD, count_macs, train_flops
from mgexp.multigrid.schedule import Schedule
from mgexp.multigrid.shapes import BatchShape
from mgexp.train.setup import build_num_videos, build_row_schedule

NOT_OF_THE_NETWORK = ("MULTIGRID", "SOLVER", "ROW", "EXPECTED", "RNG_SEED")
"""Keys and sections that do not change the network, although the rows of a folder differ in them."""


@dataclass(frozen=True)
class RowSchedule:
    """A row and its schedule. ``macs`` are the multiply-adds of a forward pass of one clip, by (frames, crop)."""

    name: str
    schedule: Schedule
    macs: Mapping[tuple[int, int], int]

    @property
    def train_flops(self) -> int:
        """The training FLOPs of a whole run."""
        return train_flops(self.schedule, self.macs)

    def step_flops(self, shape: BatchShape) -> int:
        """Count the training FLOPs of a step of ``shape``."""
        macs = self.macs[shape.frames, shape.crop]
        return shape.clips * macs * FLOPS_PER_MAC * TRAINING_PER_FORWARD

    def clips_per_teraflop(self, shapes: Sequence[BatchShape]) -> float:
        """Count the clips per 10¹² FLOPs of training, over one step of each shape."""
        return 1e12 * sum(shape.clips for shape in shapes) / sum(map(self.step_flops, shapes))


def build_known_schedule(cfg: Config, num_videos: int | None = None) -> Schedule | None:
    """Build the schedule for ``num_videos``, or those of the row; None if unknown. Raises InputError."""
    num, problems = build_num_videos(cfg, num_videos)
    return None if problems else build_row_schedule(cfg, num)


def load_schedules(
    yamls: Mapping[str, Path], trained: Mapping[str, Collection[int]]
) -> tuple[RowSchedule, ...]:
    """Load the schedule of each row from its YAML. Raises InputError for an impossible schedule.

    ``trained`` has the numbers of training videos of each row's runs. A row is left out if its runs had different
    numbers, or if it has no run and its number is unknown.
    """
    # Counting builds the network, which takes seconds, and most rows of a folder share their network.
    counts: dict[object, dict[tuple[int, int], int]] = {}
    rows = []
    for name, yaml in yamls.items():
        numbers = trained.get(name, ())
        if len(numbers) > 1:
            continue
        try:
            cfg = load_config(yaml)
            schedule = build_known_schedule(cfg, min(numbers, default=None))
        except InputError as error:
            raise InputError([f"{name}: {problem}" for problem in error.problems]) from error
        if schedule is None:
            continue
        keys = [pair for pair in flatten(cfg) if pair[0].split(".")[0] not in NOT_OF_THE_NETWORK]
        macs = counts.setdefault(tuple(keys), {})
        if new := {*schedule.sizes} - macs.keys():
            # Counting runs a forward pass, which is twice as fast in this memory format.
            macs.update(count_macs(channels_last(build_network(cfg)), new))
        rows.append(RowSchedule(name, schedule, macs))
    return tuple(rows)
