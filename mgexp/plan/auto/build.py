"""Settings of a configuration that say "auto": measured on this machine, before a run starts."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Sequence

import torch
from fvcore.common.config import CfgNode

from mgexp.data.build import build_opener
from mgexp.data.decode import VideoError
from mgexp.data.records import Record, evenly_spaced
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.plan.loading import Kind, Leg, kinds_of, legs_of
from mgexp.plan.machine import synchronizer
from mgexp.plan.measure import measure, one_core
from mgexp.plan.step_shapes import StepShape, step_counts
from mgexp.plan.ways.build import build_loads, build_training_step
from mgexp.plan.workers import Workers, choose_workers
from mgexp.record.environment import num_cores
from mgexp.train.build import SHARED_MEMORY, ready_bytes
from mgexp.train.inputs import Inputs

NUM_VIDEOS = 4
"""Whose clips are timed. Assumption: enough for a mean that is right to a third."""


def with_workers(
    cfg: CfgNode, inputs: Inputs, processes: Processes, device: torch.device
) -> CfgNode:
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
        batch_bytes=ready_bytes(cfg, inputs.schedule, processes.count),
        free_bytes=_free_shared_bytes() / processes.local_count,
    )
    return _with(cfg, chosen)


def load_seconds(cfg: CfgNode, inputs: Inputs, processes: Processes) -> float:
    """Of one core, to load a step of this process in the phase where that takes longest."""
    legs = legs_of(inputs.schedule)
    try:
        seconds = clip_seconds(cfg, evenly_spaced(inputs.train, NUM_VIDEOS), legs)
    except VideoError as error:
        raise InputError([f"DATA_LOADER.NUM_WORKERS auto: {error}; give a number"]) from error
    return max(leg.core_seconds_per_step(seconds) for leg in legs) / processes.count


def clip_seconds(
    cfg: CfgNode, records: Sequence[Record], legs: tuple[Leg, ...]
) -> dict[Kind, float]:
    """Of one core, to load a clip of each kind of ``legs``, a mean over ``records``. Raises VideoError."""
    ways = build_loads(cfg, records, {"row": build_opener(cfg)})
    with one_core():
        return measure(ways, kinds_of(legs), len(records), 1)["row"].median()


def num_workers_of(cfg: CfgNode) -> int:
    """DATA_LOADER.NUM_WORKERS; where it is auto, the most that it would choose: one for each core."""
    workers = cfg.DATA_LOADER.NUM_WORKERS
    return num_cores() if workers == "auto" else int(workers)


def step_seconds(cfg: CfgNode, inputs: Inputs, processes: Processes, device: torch.device) -> float:
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


def _with(cfg: CfgNode, chosen: Workers) -> CfgNode:
    found = cfg.clone()
    found.defrost()
    found.DATA_LOADER.NUM_WORKERS = chosen.num_workers
    found.DATA_LOADER.PREFETCH_FACTOR = chosen.prefetch_factor
    found.freeze()
    return found
