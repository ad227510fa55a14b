"""Choose the loader workers that keep up with training: DATA_LOADER.NUM_WORKERS = auto."""

from __future__ import annotations

import math
import platform
import shutil
from collections.abc import Callable

import torch

from mgexp import dist
from mgexp.config.keys import Config, DataLoaderKeys
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.plan.loading import build_clip_seconds, phase_loads
from mgexp.plan.timing import Step, Stopwatch
from mgexp.run.environment import allowed_cores, num_cores, within_quota
from mgexp.train.setup import SHARED_MEMORY, Inputs, build_ready_bytes
from mgexp.video.paths import evenly_spaced
from mgexp.video.reader import VideoError

PREFETCH = 2
"""Batches that each worker keeps ready: training takes one while the worker makes the other. torch's default."""
NUM_VIDEOS = 4
"""Number of videos whose clips are timed. Assumption: their mean is wrong by a third at most."""


def choose_workers(
    num_needed: int, max_workers: int, batch_bytes: int, free_bytes: float
) -> DataLoaderKeys:
    """Choose ``num_needed`` workers, at least 1 and at most ``max_workers``.

    Their batches of ``batch_bytes`` and the batch in use must fit into ``free_bytes`` of shared
    memory. If they do not fit, each worker keeps fewer batches ready. If they still do not fit,
    there are fewer workers.
    """
    # A worker that finds shared memory full cannot hand its batch on, and the run ends: see
    # data/time_limit.py.
    wanted = max(1, min(num_needed, max_workers))
    num_batches = math.inf
    if math.isfinite(free_bytes):
        # Training uses one batch while the workers keep the others ready.
        num_batches = max(1, int(free_bytes // batch_bytes) - 1)
    for prefetch in range(PREFETCH, 0, -1):
        if wanted * prefetch <= num_batches:
            return DataLoaderKeys(wanted, prefetch)
    return DataLoaderKeys(int(num_batches), 1)


HEADROOM = 1.25
"""Factor on the number of workers that suffices on average, because clips differ in cost. Assumption."""


def workers_needed(load_core_seconds: float, step_seconds: float) -> int:
    """Count the workers that load a step's clips during a step, with HEADROOM; at least one."""
    # Subtract a rounding error first, since otherwise 2.0000000001 workers would become 3.
    return max(1, math.ceil(HEADROOM * load_core_seconds / step_seconds - 1e-9))


def build_chooser(
    cfg: Config, inputs: Inputs, processes: Processes, device: torch.device
) -> Callable[[Step], DataLoaderKeys] | None:
    """Time the loading of a few videos; return a function that chooses the workers from the run's training step.

    The phase with the most expensive clips per step decides. Return None if DATA_LOADER.NUM_WORKERS
    is a number. Raises InputError if a video fails.
    """
    if cfg.DATA_LOADER.NUM_WORKERS != "auto":
        return None
    loads, records = phase_loads(inputs.schedule), evenly_spaced(inputs.train, NUM_VIDEOS)
    try:
        seconds = build_clip_seconds(cfg, inputs.schedule, records, inputs.opener)
    except VideoError as error:
        raise InputError([f"DATA_LOADER.NUM_WORKERS = auto: {error}; give a number"]) from error
    load_core_seconds = max(load.core_seconds_per_step(seconds) for load in loads) / processes.count
    batch_bytes = build_ready_bytes(cfg, inputs.schedule, processes.count)
    free = free_shared_bytes()
    stopwatch = Stopwatch(device)

    # The step is an argument, so that the run's own network is timed, and no second one is built
    # for it.
    def choose(step: Step) -> DataLoaderKeys:
        max_workers = num_local_cores(processes) // processes.local_count
        # This step is not counted: the first use of a shape prepares memory and libraries.
        stopwatch.time(step)
        return choose_workers(
            workers_needed(load_core_seconds, stopwatch.time(step).seconds),
            # The processes of a machine share its cores and its shared memory.
            max_workers=max_workers,
            batch_bytes=batch_bytes,
            free_bytes=free / processes.local_count,
        )

    return choose


def num_local_cores(processes: Processes) -> int:
    """Count the cores that the processes of this machine may use together. Every process must call this."""
    # Slurm may bind each process to cores of its own, or let all have all cores.
    host = platform.node()
    own = " ".join([host, *map(str, allowed_cores())])
    everyones = dist.merge(processes, {processes.rank: own}).values()
    return within_quota(
        len({core for text in everyones for core in text.split()[1:] if text.split()[0] == host})
    )


def build_evaluation_workers(cfg: Config, inputs: Inputs) -> DataLoaderKeys:
    """Choose the workers of an evaluation alone. ``auto``: one for each core, and no more than there are batches.

    An evaluation has no training step that the workers must keep up with, so nothing is timed.
    """
    if cfg.DATA_LOADER.NUM_WORKERS != "auto":
        return cfg.DATA_LOADER
    num_views = len(inputs.val) * cfg.TEST.NUM_ENSEMBLE_VIEWS * cfg.TEST.NUM_SPATIAL_CROPS
    num_batches = math.ceil(num_views / cfg.TEST.BATCH_SIZE)
    batch_bytes = build_ready_bytes(cfg, inputs.schedule, 1)
    return choose_workers(num_batches, num_cores(), batch_bytes, free_shared_bytes())


def free_shared_bytes() -> float:
    """Return the free bytes of shared memory; infinity on a system that does not limit it."""
    return shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else math.inf


def most_workers(num_workers: int | str, num_cores: int) -> int:
    """Return DATA_LOADER.NUM_WORKERS, or for auto its upper limit: one worker for each core of the process."""
    return num_cores if num_workers == "auto" else int(num_workers)
