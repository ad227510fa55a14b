"""From YAMLs, runs and stored runs to what the figures draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from fvcore.common.config import CfgNode

from mgexp.config.load import flatten, load_config
from mgexp.errors import InputError
from mgexp.models.build import network_of
from mgexp.multigrid.schedule import Schedule
from mgexp.record.comparison import SHORTER, Comparison, load_comparison, row_order
from mgexp.record.figures.row_schedule import RowSchedule
from mgexp.record.flops import macs_by_shape, schedule_shapes
from mgexp.record.run_dir import RunsDir
from mgexp.record.stored import read_stored
from mgexp.train.build import num_videos_of, try_schedule

NOT_OF_THE_NETWORK = ("MULTIGRID", "SOLVER", "ROW", "EXPECTED", "RNG_SEED")
"""Keys in which the rows of a folder differ while their networks are the same: what these cost is counted once."""

Counted = dict[tuple[object, ...], dict[tuple[int, int], int]]
"""Multiply-adds by shape, by everything else of a configuration."""


def load_results(folder: Path) -> tuple[Comparison, tuple[RowSchedule, ...]]:
    """The runs of a folder and the schedules of its rows.

    ``folder`` holds run folders (runs/quickstart), or YAMLs and the runs that were stored beside them
    (experiments/quickstart), or YAMLs alone. Raises InputError where it holds none of them, or a file cannot be
    understood.
    """
    if not any(folder.glob("*.yaml")):
        comparison = load_comparison(folder)
        if not comparison.rows:
            raise InputError([f"{folder}: holds neither runs nor the YAML of a row; give another"])
        return comparison, _schedules(comparison, _yamls_of_runs(folder))
    comparison = replace(_stored(folder), shorter=_stored(folder / SHORTER).rows)
    return comparison, _schedules(comparison, {path.stem: path for path in folder.glob("*.yaml")})


def _stored(folder: Path) -> Comparison:
    path = RunsDir(folder).stored_jsonl
    return read_stored(path) if path.exists() else Comparison(())


def load_rows(folder: Path) -> tuple[RowSchedule, ...]:
    """The schedules of the rows of ``folder``, as `load_results` gives them."""
    return load_results(folder)[1]


def _yamls_of_runs(folder: Path) -> dict[str, Path]:
    """The configuration of a run of each row."""
    return {row: run.config_yaml for row, _, run in RunsDir(folder).runs()}


def _schedules(comparison: Comparison, yamls: Mapping[str, Path]) -> tuple[RowSchedule, ...]:
    """In the order of the report; a row whose number of videos is not known is left out."""
    counted: Counted = {}
    rows = []
    for name in sorted(yamls, key=row_order):
        runs = comparison.row(name).runs.values()
        num_videos = {run.result.num_train_videos for run in runs}
        cfg = load_config(yamls[name])
        schedule = _schedule(name, cfg, sorted(num_videos))
        if schedule:
            rows.append(RowSchedule(name, schedule, _macs(cfg, schedule, counted)))
    return tuple(rows)


def _schedule(name: str, cfg: CfgNode, num_videos: Sequence[int]) -> Schedule | None:
    """Over the videos that it was trained with; over those that its YAML tells of where it was not."""
    trained = num_videos[0] if num_videos else None
    count, problems = num_videos_of(cfg, trained)
    if problems or len(num_videos) > 1:
        return None
    schedule, problems = try_schedule(cfg, count, num_processes=1)
    if schedule is None or problems:
        raise InputError([f"{name}: {problem}" for problem in problems])
    return schedule


def _macs(cfg: CfgNode, schedule: Schedule, counted: Counted) -> dict[tuple[int, int], int]:
    """Of every shape of the schedule; those of a network that was counted before are not counted again."""
    key = tuple(
        (name, value)
        for name, value in flatten(cfg)
        if name.split(".")[0] not in NOT_OF_THE_NETWORK
    )
    known = counted.setdefault(key, {})
    new = schedule_shapes(schedule) - known.keys()
    if new:
        network = network_of(cfg).to(memory_format=torch.channels_last_3d)  # twice as fast
        known.update(macs_by_shape(network, new))
    return known
