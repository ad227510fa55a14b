"""How many loader workers keep up with training: the one rule, and DATA_LOADER.NUM_WORKERS = auto."""

from __future__ import annotations

import math
import shutil
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import torch

from mgexp.config.keys import Config
from mgexp.data.loader import build_opener
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.multigrid.schedule import step_counts
from mgexp.plan.loading import Kind, Leg, Load, build_loads, kinds_of, legs_of, measure, one_core
from mgexp.plan.predict import workers_needed
from mgexp.plan.timing import Stopwatch, measure_steps
from mgexp.plan.ways import WayInProcesses, build_training_step
from mgexp.run.environment import num_cores
from mgexp.train.setup import SHARED_MEMORY, Inputs, build_ready_bytes
from mgexp.video.paths import evenly_spaced
from mgexp.video.reader import VideoError

PREFETCH = 2
"""Batches that each worker keeps ready: one that is taken, one that is made. torch's own default."""
NUM_VIDEOS = 4
"""Videos whose clips are timed. Assumption: enough for a mean that is right to a third."""


@dataclass(frozen=True)
class Workers:
    """Settings of a loader: DATA_LOADER.NUM_WORKERS and PREFETCH_FACTOR."""

    num_workers: int
    prefetch_factor: int


def choose_workers(
    load_core_seconds: float,
    step_seconds: float,
    max_workers: int,
    batch_bytes: int,
    free_bytes: float,
) -> Workers:
    """Choose as many workers as are needed, at least 1 and at most ``max_workers``.

    Where their batches of ``batch_bytes`` and the one in use do not fit into ``free_bytes`` of shared memory,
    fewer batches are kept ready, and then there are fewer workers.
    """
    wanted = min(workers_needed(load_core_seconds, step_seconds), max(1, max_workers))
    num_batches = (
        max(1, int(free_bytes // batch_bytes) - 1) if math.isfinite(free_bytes) else math.inf
    )
    for prefetch in range(PREFETCH, 0, -1):
        if wanted * prefetch <= num_batches:
            return Workers(wanted, prefetch)
    return Workers(int(num_batches), 1)


def build_workers(
    cfg: Config, inputs: Inputs, processes: Processes, device: torch.device
) -> Config:
    """Replace DATA_LOADER.NUM_WORKERS = auto in ``cfg`` by what this process needs; a number stays as it is.

    The phase whose clips cost most decides. Its loading is timed on a few videos, and a step of the full shape
    on random clips: the steps of all shapes compute about as long. Raises InputError where a video fails.
    """
    if cfg.DATA_LOADER.NUM_WORKERS != "auto":
        return cfg
    legs, records = legs_of(inputs.schedule), evenly_spaced(inputs.train, NUM_VIDEOS)
    try:
        load = build_loads(cfg, records, {"": build_opener(cfg)})[""]
        seconds = clip_seconds(load, legs, len(records))
    except VideoError as error:
        raise InputError([f"DATA_LOADER.NUM_WORKERS = auto: {error}; give a number"]) from error
    free = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else math.inf
    chosen = choose_workers(
        max(leg.core_seconds_per_step(seconds) for leg in legs) / processes.count,
        build_step_seconds(cfg, inputs, processes, device),
        max_workers=num_cores() // processes.local_count,
        batch_bytes=build_ready_bytes(cfg, inputs.schedule, processes.count),
        free_bytes=free / processes.local_count,
    )
    loader = replace(
        cfg.DATA_LOADER,
        NUM_WORKERS=chosen.num_workers,
        PREFETCH_FACTOR=chosen.prefetch_factor,
    )
    return replace(cfg, DATA_LOADER=loader)


def build_step_seconds(
    cfg: Config, inputs: Inputs, processes: Processes, device: torch.device
) -> float:
    """Time the second step of the full shape in a process of its own, which then ends.

    In the process of the run a step would keep memory, and the run's own first step would find its libraries
    warm, so that the clock of training would miss the first use of a shape.
    """
    shapes = step_counts(inputs.schedule, processes.count)
    full = max(shapes, key=lambda shape: shape.frames * shape.crop**2)
    full = replace(full, num_bn_groups=max(1, full.num_bn_groups))  # a group may span processes
    make = partial(build_training_step, cfg, device)
    with closing(WayInProcesses([make], torch.get_num_threads())) as way:
        # The step in the other process returns its loss, for which that process waits for its device.
        timed = measure_steps({"": way}, [full], 1, 1, Stopwatch(torch.device("cpu")))
    return timed[""][full].seconds[0]


def clip_seconds(load: Load, legs: tuple[Leg, ...], num_videos: int) -> dict[Kind, float]:
    """Time a clip of each kind of ``legs`` on one core, as a mean over the videos. Raises VideoError."""
    with one_core():
        return measure({"": load}, kinds_of(legs), num_videos)[""].median()


def most_workers(num_workers: int | str) -> int:
    """Return DATA_LOADER.NUM_WORKERS; for auto, the most that it would choose: one for each core."""
    return num_cores() if num_workers == "auto" else int(num_workers)
