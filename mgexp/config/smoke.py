"""A small run of the same experiment: other numbers of videos, steps and channels, nothing else."""

from __future__ import annotations

import math

from fvcore.common.config import CfgNode

from mgexp.config.load import flatten, freeze

SMOKE_STEPS = 56  # of the baseline: a step for every phase of the rows whose phases end with steps
SMOKE_VAL_VIDEOS = 16
WIDTH_DIVISOR = 8


def smoke(cfg: CfgNode) -> CfgNode:
    """A new configuration whose baseline takes about 56 steps; shapes, epochs and ratios stay as they are."""
    values = dict(flatten(cfg))
    videos = math.ceil(SMOKE_STEPS * cfg.TRAIN.BATCH_SIZE / cfg.SOLVER.MAX_EPOCH)
    beta_inv = cfg.SLOWFAST.BETA_INV
    width = beta_inv * max(1, cfg.RESNET.WIDTH_PER_GROUP // WIDTH_DIVISOR // beta_inv)
    values.update(
        {
            "DATA.MAX_TRAIN_VIDEOS": max(1, videos),
            "DATA.MAX_VAL_VIDEOS": SMOKE_VAL_VIDEOS,
            "RESNET.WIDTH_PER_GROUP": width,
            "TRAIN.INIT_WEIGHTS": "",  # they fit the full width only
            "EXPECTED": (),
        }
    )
    return freeze(values)
