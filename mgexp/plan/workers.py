"""Settings of a configuration that say "auto": measured on this machine, before a run starts."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from mgexp.config.keys import Config
from mgexp.data.loader import build_opener
from mgexp.data.records import Record
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.multigrid.schedule import StepShape, step_counts
from mgexp.plan.loading import Kind, Leg, kinds_of, legs_of, measure, one_core
from mgexp.plan.machine import synchronizer
from mgexp.plan.ways import build_loads, build_training_step
from mgexp.run.environment import num_cores
from mgexp.train.setup import SHARED_MEMORY, Inputs, build_ready_bytes
from mgexp.video.paths import evenly_spaced
from mgexp.video.reader import VideoError

HEADROOM = 1.25
"""Workers more than the mean needs: clips differ in cost. Assumption."""
PREFETCH = 2
"""Batches that each worker keeps ready: one that is taken, one that is made. torch's own default."""


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
    """As many workers as load a step's clips, ``load_core_seconds``, while one is trained, ``step_seconds``.

    At least one and at most ``max_workers``; fewer batches ready, then fewer workers, where their batches of
    ``batch_bytes`` and the one in use do not fit into ``free_bytes`` of shared memory.
    """
    wanted = min(
        max(1, math.ceil(HEADROOM * load_core_seconds / step_seconds)), max(1, max_workers)
    )
    num_batches = (
        max(1, int(free_bytes // batch_bytes) - 1) if math.isfinite(free_bytes) else math.inf
    )
    for prefetch in range(PREFETCH, 0, -1):
        if wanted * prefetch <= num_batches:
            return Workers(wanted, prefetch)
    return Workers(int(num_batches), 1)


NUM_VIDEOS = 4
"""Whose clips are timed. Assumption: enough for a mean that is right to a third."""


def with_workers(cfg: Config, inputs: Inputs, processes: Processes, device: torch.device) -> Config:
    """``cfg`` with numbers where DATA_LOADER.NUM_WORKERS is auto, for this process; else itself. Frozen.

    The dearest phase decides: its loading is timed on a few videos, a step of the full shape on random clips.
    All steps compute about as long. Raises InputError where a video fails that is timed.
    """
    if cfg.DATA_LOADER.NUM_WORKERS != "auto":
        return cfg
    chosen = choose_workers(
        load_seconds(cfg, inputs, processes),
        step_seconds(cfg, inputs, processes, device),
        max_workers=num_cores() // processes.local_count,
        batch_bytes=build_ready_bytes(cfg, inputs.schedule, processes.count),
        free_bytes=_free_shared_bytes() / processes.local_count,
    )
    return _with(cfg, chosen)


def load_seconds(cfg: Config, inputs: Inputs, processes: Processes) -> float:
    """Of one core, to load a step of this process in the phase where that takes longest."""
    legs = legs_of(inputs.schedule)
    try:
        seconds = clip_seconds(cfg, evenly_spaced(inputs.train, NUM_VIDEOS), legs)
    except VideoError as error:
        raise InputError([f"DATA_LOADER.NUM_WORKERS auto: {error}; give a number"]) from error
    return max(leg.core_seconds_per_step(seconds) for leg in legs) / processes.count


def clip_seconds(
    cfg: Config, records: Sequence[Record], legs: tuple[Leg, ...]
) -> dict[Kind, float]:
    """Of one core, to load a clip of each kind of ``legs``, a mean over ``records``. Raises VideoError."""
    ways = build_loads(cfg, records, {"row": build_opener(cfg)})
    with one_core():
        return measure(ways, kinds_of(legs), len(records), 1)["row"].median()


def num_workers_of(cfg: Config) -> int:
    """DATA_LOADER.NUM_WORKERS; where it is auto, the most that it would choose: one for each core."""
    workers = cfg.DATA_LOADER.NUM_WORKERS
    return num_cores() if workers == "auto" else int(workers)


def step_seconds(cfg: Config, inputs: Inputs, processes: Processes, device: torch.device) -> float:
    """Of the second step of the finest shape on random clips; the first makes ready."""
    shape = max(step_counts(inputs.schedule, processes.count), key=_fineness)
    step = build_training_step(cfg, device)(shape)
    wait = synchronizer(device)
    seconds = math.inf
    for _ in range(2):
        start = time.perf_counter()
        step()
        wait()
        seconds = time.perf_counter() - start
    return seconds


def _fineness(shape: StepShape) -> int:
    return shape.frames * shape.crop**2


def _free_shared_bytes() -> float:
    return shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else math.inf


def _with(cfg: Config, chosen: Workers) -> Config:
    loader = replace(
        cfg.DATA_LOADER,
        NUM_WORKERS=chosen.num_workers,
        PREFETCH_FACTOR=chosen.prefetch_factor,
    )
    return replace(cfg, DATA_LOADER=loader)
