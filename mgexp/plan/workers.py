"""Choose the loader workers that keep up with training: DATA_LOADER.NUM_WORKERS = auto."""

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
from mgexp.plan.loading import build_clip_seconds, legs_of, one_core
from mgexp.plan.predict import workers_needed
from mgexp.plan.timing import Stopwatch, measure_steps
from mgexp.plan.ways import WayInProcesses, build_training_step
from mgexp.run.environment import num_cores
from mgexp.train.setup import SHARED_MEMORY, Inputs, build_ready_bytes
from mgexp.video.paths import evenly_spaced
from mgexp.video.reader import VideoError

PREFETCH = 2
"""Batches that each worker keeps ready: training takes one while the worker makes the other. torch's default."""
NUM_VIDEOS = 4
"""Videos whose clips are timed. Assumption: their mean is right to a third."""


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

    Their batches of ``batch_bytes`` and the batch in use must fit into ``free_bytes`` of shared memory. Where
    they do not, first each worker keeps fewer batches ready; then there are fewer workers.
    """
    wanted = min(workers_needed(load_core_seconds, step_seconds), max(1, max_workers))
    num_batches = math.inf
    if math.isfinite(free_bytes):
        num_batches = max(1, int(free_bytes // batch_bytes) - 1)  # one batch is in use
    for prefetch in range(PREFETCH, 0, -1):
        if wanted * prefetch <= num_batches:
            return Workers(wanted, prefetch)
    return Workers(int(num_batches), 1)


def build_workers(
    cfg: Config, inputs: Inputs, processes: Processes, device: torch.device
) -> Config:
    """Replace DATA_LOADER.NUM_WORKERS = auto in ``cfg`` by what this process needs; a number stays as it is.

    The phase whose clips cost most decides. Loading is timed on a few videos. Computing is timed on random clips
    of the full shape alone, since the steps of all shapes take about equally long. Raises InputError where a
    video fails.
    """
    if cfg.DATA_LOADER.NUM_WORKERS != "auto":
        return cfg
    legs, records = legs_of(inputs.schedule), evenly_spaced(inputs.train, NUM_VIDEOS)
    try:
        opener = build_opener(cfg)
        with one_core():
            seconds = build_clip_seconds(cfg, legs, records, {"": opener})[""]
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
    settings = {"NUM_WORKERS": chosen.num_workers, "PREFETCH_FACTOR": chosen.prefetch_factor}
    return replace(cfg, DATA_LOADER=replace(cfg.DATA_LOADER, **settings))


def build_step_seconds(
    cfg: Config, inputs: Inputs, processes: Processes, device: torch.device
) -> float:
    """Time the second step of the full shape, in a new process that then ends."""
    # In the process of the run this step would keep memory. It would also prepare the libraries for the shape, and
    # the clock of training would then miss the first use of a shape.
    shapes = step_counts(inputs.schedule, processes.count)
    full = max(shapes, key=lambda shape: shape.frames * shape.crop**2)
    full = replace(
        full, num_bn_groups=max(1, full.num_bn_groups)
    )  # below 0: a group spans processes
    make = partial(build_training_step, cfg, device)
    with closing(WayInProcesses([make], torch.get_num_threads())) as way:
        # This stopwatch need not wait for a GPU: the other process does, before it returns the loss.
        timed = measure_steps({"": way}, [full], 1, 1, Stopwatch(torch.device("cpu")))
    return timed[""][full].seconds[0]


def most_workers(num_workers: int | str) -> int:
    """Return DATA_LOADER.NUM_WORKERS, or for auto its upper limit: one worker for each core."""
    return num_cores() if num_workers == "auto" else int(num_workers)
