"""The schedules of rows with the cost of each shape, and the shorter baselines that cost as much as a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean

from mgexp.config.load import flatten, load_config
from mgexp.config.study import SECONDS_NAME, Study, budget_text
from mgexp.errors import InputError
from mgexp.models.build import build_network, channels_last
from mgexp.models.cost import (
    FLOPS_PER_MAC,
    TRAINING_PER_FORWARD,
    count_macs,
    train_flops,
)
from mgexp.multigrid.schedule import Schedule
from mgexp.multigrid.shapes import BatchShape
from mgexp.results.collect import Gathered
from mgexp.results.model import Comparison, Evaluation, Pair, Run, row_order
from mgexp.train.setup import build_num_videos, build_row_schedule

MAX_LR_STEPS = 400
"""The learning rate is drawn at about this many steps. A panel of a few centimetres cannot show more."""
NOT_OF_THE_NETWORK = ("MULTIGRID", "SOLVER", "ROW", "EXPECTED", "RNG_SEED")
"""Keys and sections that do not change the network, although the rows of a folder differ in them."""


@dataclass(frozen=True)
class RowSchedule:
    """A row and its schedule. ``macs`` are the multiply-adds of a forward pass of one clip, by (frames, crop)."""

    name: str
    schedule: Schedule
    macs: Mapping[tuple[int, int], int]

    @property
    def work(self) -> tuple[int, int]:
        """The steps and training FLOPs of a whole run."""
        return self.schedule.total_steps, self.flops_before(self.schedule.total_steps)

    def flops_before(self, step: int) -> int:
        """Count the training FLOPs of the steps before ``step``."""
        done = tuple(
            replace(phase, end_step=min(phase.end_step, step))
            for phase in self.schedule.phases
            if phase.start_step < step
        )
        return train_flops(replace(self.schedule, phases=done), dict(self.macs))

    def flops_at(self, run: Run, one: Evaluation) -> int | None:
        """Count the training FLOPs of ``run`` until an evaluation. None if it took other steps or FLOPs."""
        known = self.work == (run.steps, run.train_flops)
        return self.flops_before(one.step) if known else None

    def clips(self, shape: BatchShape) -> int:
        """Count the clips of a mini-batch of ``shape``, over all processes."""
        return shape.clips(self.schedule.recipe.clips)

    def step_flops(self, shape: BatchShape) -> int:
        """Count the training FLOPs of a step of ``shape``."""
        macs = self.macs[shape.frames, shape.crop]
        return self.clips(shape) * macs * FLOPS_PER_MAC * TRAINING_PER_FORWARD

    def clips_per_teraflop(self, shapes: Sequence[BatchShape]) -> float:
        """Count the clips per 10¹² FLOPs of training, over one step of each shape.

        If the devices compute 10¹² FLOPs per second, the loader must deliver this number of clips per second.
        """
        return 1e12 * sum(map(self.clips, shapes)) / sum(map(self.step_flops, shapes))

    def learning_rates(self) -> list[tuple[int, float]]:
        """List (step, rate) at both ends of every phase, and at about MAX_LR_STEPS evenly spaced steps."""
        total = self.schedule.total_steps
        stride = max(1, total // MAX_LR_STEPS)
        ends = {step for one in self.schedule.phases for step in (one.start_step, one.end_step - 1)}
        steps = sorted({*ends, *range(0, total, stride)})
        return [(step, self.schedule.plan_at(step).lr) for step in steps]

    def stage_starts(self) -> list[int]:
        """List the first step of every stage but the first."""
        phases = self.schedule.phases
        return [new.start_step for old, new in pairwise(phases) if new.stage != old.stage]


def load_schedules(comparison: Comparison, yamls: Mapping[str, Path]) -> tuple[RowSchedule, ...]:
    """Load the schedule of each row from its YAML, in the order of the report.

    The number of training videos comes from the runs of a row, or without runs from its YAML. A row is left out if
    this number is unknown, or if its runs had different numbers. Raises InputError for an impossible schedule.
    """
    # Counting builds the network, which takes seconds, and most rows of a folder share their network.
    counted: dict[object, dict[tuple[int, int], int]] = {}
    rows = []
    for name in sorted(yamls, key=row_order):
        cfg = load_config(yamls[name])
        trained = {run.num_train_videos for run in comparison.row(name).runs.values()}
        num_videos, problems = build_num_videos(cfg, min(trained, default=None))
        # Runs with other numbers of videos have other schedules, and the panel has room for one.
        if problems or len(trained) > 1:
            continue
        try:
            schedule = build_row_schedule(cfg, num_videos)
        except InputError as error:
            raise InputError([f"{name}: {problem}" for problem in error.problems]) from error
        keys = flatten(cfg)
        network_keys = tuple(k for k in keys if k[0].split(".")[0] not in NOT_OF_THE_NETWORK)
        macs = counted.setdefault(network_keys, {})
        new = {*schedule.sizes} - macs.keys()
        if new:
            # Counting runs a forward pass, which is twice as fast in this memory format.
            macs.update(count_macs(channels_last(build_network(cfg)), new))
        rows.append(RowSchedule(name, schedule, macs))
    return tuple(rows)


def load_flops(comparison: Comparison, yamls: Mapping[str, Path]) -> dict[str, int]:
    """Count the training FLOPs of a whole run of each row whose schedule `load_schedules` knows."""
    return {one.name: one.work[1] for one in load_schedules(comparison, yamls)}


def new_budgets(study: Study, gathered: Gathered) -> dict[str, str]:
    """Write the YAMLs of shorter baselines that are missing and can be known, by name.

    FLOPs follow from the schedules. Seconds need the first pairs of the study, and their YAML is written once.
    """
    missing = {
        name: row for name, row in study.budget_rows.items() if not study.yamls[name].exists()
    }
    in_seconds = {SECONDS_NAME.format(row=row) for row in study.equal_seconds}
    texts = {}
    rows = {row for name, row in missing.items() if name not in in_seconds}
    if rows:
        yamls = {row: study.yamls[row] for row in {*rows, study.baseline}}
        flops = load_flops(gathered.comparison, yamls)
        lost = [row for row in yamls if row not in flops]
        if lost:
            problem = f"the FLOPs of {', '.join(sorted(lost))} are unknown: give DATA.NUM_VIDEOS"
            raise InputError([f"{study.folder}: {problem}, or the training list"])
    row_of = gathered.comparison.row
    for name, row in missing.items():
        if name not in in_seconds:
            texts[name] = budget_text(
                study, name, flops[row] / flops[study.baseline], "the schedules of both"
            )
            continue
        pair = Pair(row_of(row), row_of(study.baseline)).timed
        ratios = [
            base.train_seconds / one.train_seconds for one, base in pair.runs[: study.seconds_pairs]
        ]
        if len(ratios) == study.seconds_pairs:
            seeds = ", ".join(str(seed) for seed in pair.seeds[: study.seconds_pairs])
            texts[name] = budget_text(
                study, name, 1 / geometric_mean(ratios), f"the seconds of seeds {seeds}"
            )
    return texts
