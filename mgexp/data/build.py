"""From the configuration to records and loaders."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fvcore.common.config import CfgNode
from torch.utils.data import DataLoader

from mgexp.data.clips import Request, TrainingClips, collate
from mgexp.data.quarantine import without_quarantined
from mgexp.data.records import VideoList, VideoRecord, read_list
from mgexp.data.views import EvaluationViews, collate_views
from mgexp.dist import Processes
from mgexp.stop import STOP_SIGNALS

CPU_WORKER_NICENESS = 19
"""On a CPU, workers yield to the training threads, which wait for each other: one held up holds up all. Measured
on 2 cores with 2 workers, quickstart baseline, 150 steps three times each: 22.5 s (21.6 to 24.2), with a niceness
of 10 26.7 s (23.7 to 27.8). 0 is slower still. Beside a GPU workers keep the priority of the whole process."""


def build_list(cfg: CfgNode, key: str) -> VideoList:
    """The videos of DATA.``key``, those of DATA.QUARANTINE as missing, with what is wrong with the list."""
    path = cfg.DATA[key]
    if not path:
        remedy = f"add DATA.{key} FILE, a text file with a 'path label' line per video"
        return VideoList((), (), (f"DATA.{key} is not set: {remedy}",))
    root = Path(cfg.DATA.PATH_PREFIX)
    videos = read_list(Path(path), root, cfg.MODEL.NUM_CLASSES, cfg.DATA.PATH_LABEL_SEPARATOR)
    quarantine = cfg.DATA.QUARANTINE
    return without_quarantined(videos, Path(quarantine), root) if quarantine else videos


def build_train_loader(
    cfg: CfgNode,
    records: Sequence[VideoRecord],
    batches: Iterable[Sequence[Request]],
    device: torch.device,
) -> DataLoader[object]:
    """Loads the clips of ``batches``, one list of requests a step: one loader serves every shape."""
    clips = TrainingClips(
        records,
        target_fps=cfg.DATA.TARGET_FPS,
        jitter=cfg.DATA.TRAIN_JITTER_SCALES,
        full_crop=cfg.DATA.TRAIN_CROP_SIZE,
        inverse_uniform=cfg.DATA.INV_UNIFORM_SAMPLE,
        flip=cfg.DATA.RANDOM_FLIP,
    )
    return DataLoader(
        clips,
        batch_sampler=batches,  # type: ignore[arg-type]
        collate_fn=collate,
        **_worker_options(cfg, device),
    )


def build_view_loader(
    cfg: CfgNode,
    records: Sequence[VideoRecord],
    full_protocol: bool,
    device: torch.device,
    processes: Processes,
) -> DataLoader[object]:
    """Loads this process's views: the full protocol, or one centre view at the full training shape."""
    crop = cfg.DATA.TEST_CROP_SIZE if full_protocol else cfg.DATA.TRAIN_CROP_SIZE
    num_crops = cfg.TEST.NUM_SPATIAL_CROPS if full_protocol else 1
    views = EvaluationViews(
        records,
        frames=cfg.DATA.NUM_FRAMES,
        stride=cfg.DATA.SAMPLING_RATE if cfg.DATA.TEMPORAL_GRID == "stride" else None,
        crop=crop,
        short_side=crop,
        target_fps=cfg.DATA.TARGET_FPS,
        num_views=cfg.TEST.NUM_ENSEMBLE_VIEWS if full_protocol else 1,
        num_crops=num_crops,
        frame_order=cfg.TEST.FRAME_ORDER,
    )
    return DataLoader(
        views,
        sampler=range(processes.rank, len(views), processes.count),
        batch_size=max(1, cfg.TEST.BATCH_SIZE // num_crops),
        collate_fn=collate_views,
        **_worker_options(cfg, device),
    )


def _worker_options(cfg: CfgNode, device: torch.device) -> dict[str, Any]:
    workers = cfg.DATA_LOADER.NUM_WORKERS
    return {
        "num_workers": workers,
        "prefetch_factor": cfg.DATA_LOADER.PREFETCH_FACTOR if workers else None,
        "pin_memory": device.type == "cuda",
        "worker_init_fn": partial(
            start_worker, niceness=CPU_WORKER_NICENESS if device.type == "cpu" else 0
        ),
    }


def start_worker(worker_id: int, niceness: int = 0) -> None:
    """One thread per worker; signals are for the main process, which saves and then ends its workers.

    They also reach the workers where they go to all processes of a group: Ctrl-C, torchrun, timeout, Slurm.
    """
    torch.set_num_threads(1)
    os.nice(niceness)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
