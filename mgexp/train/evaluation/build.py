"""From the configuration to how models of a run are scored."""

from __future__ import annotations

from functools import partial

import torch
from fvcore.common.config import CfgNode

from mgexp.data.build import build_time_limit, build_train_loader, build_view_loader
from mgexp.data.records import evenly_spaced
from mgexp.data.time_limit import NO_LIMIT, TimeLimit
from mgexp.dist import Processes
from mgexp.multigrid.phases import num_bn_groups
from mgexp.record.run_dir import RunDir
from mgexp.stop import StopRequest
from mgexp.train.build import build_task
from mgexp.train.evaluator import Evaluator, PreciseBn, Protocol
from mgexp.train.inputs import Inputs
from mgexp.train.precise_bn import precise_requests
from mgexp.train.step import Normalizer


def build_protocol(
    cfg: CfgNode,
    inputs: Inputs,
    run_dir: RunDir,
    full: bool,
    device: torch.device,
    processes: Processes,
) -> Protocol:
    """All views of all validation videos, or one centre view of some."""
    records = evenly_spaced(inputs.val, 0 if full else cfg.TRAIN.EVALUATION_VIDEOS)
    limit = build_time_limit(cfg, run_dir.timeouts_jsonl)
    return Protocol(
        partial(build_view_loader, cfg, records, full, device, processes, limit=limit),
        records=records,
        num_clips=cfg.TEST.NUM_ENSEMBLE_VIEWS if full else 1,
        num_crops=cfg.TEST.NUM_SPATIAL_CROPS if full else 1,
        batch_size=cfg.TEST.BATCH_SIZE,
        is_full=full,
        frame_order=cfg.TEST.FRAME_ORDER,
    )


def build_evaluator(
    cfg: CfgNode,
    inputs: Inputs,
    run_dir: RunDir,
    normalizer: Normalizer,
    processes: Processes,
    stop: StopRequest,
) -> Evaluator:
    """Scores models of the run in ``run_dir``, until a signal comes to ``stop``."""
    precise = None
    if cfg.BN.USE_PRECISE_STATS:
        limit = build_time_limit(cfg, run_dir.timeouts_jsonl)
        precise = build_precise_bn(cfg, inputs, normalizer.device, processes, limit)
    save_seconds = 60 * cfg.TRAIN.CHECKPOINT_MINUTES
    return Evaluator(run_dir, normalizer, processes, build_task(cfg), precise, save_seconds, stop)


def build_precise_bn(
    cfg: CfgNode,
    inputs: Inputs,
    device: torch.device,
    processes: Processes,
    limit: TimeLimit = NO_LIMIT,
) -> PreciseBn:
    """Training clips at the full shape, in BN groups as training has them there."""
    schedule = inputs.schedule
    requests = precise_requests(schedule, cfg.RNG_SEED, cfg.BN.NUM_BATCHES_PRECISE, processes)
    load = partial(build_train_loader, cfg, inputs.train, requests, device, limit)
    groups = num_bn_groups(schedule.recipe.clips, processes.count, cfg.MULTIGRID.BN_BASE_SIZE)
    return PreciseBn(load, groups)
