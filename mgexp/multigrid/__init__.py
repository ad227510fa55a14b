"""Multigrid mini-batches for any training loop: a schedule, a batch sampler and batch normalisation.

    schedule = build_schedule(Recipe(...), LONG_SHORT, num_videos)
    loader = DataLoader(dataset, batch_sampler=StepSampler(schedule, seed=0))    # dataset[ClipRequest] -> clip
    group_batchnorm(model)
    for step, batch in enumerate(loader):
        plan = schedule.plan_at(step)                  # learning rate, shape, clips, groups of BN
        set_num_groups(model, plan.num_bn_groups)

With several processes, each one builds the schedule with num_processes=…, takes the batches of its rank=…, and
calls share_statistics(model) after every step. check_shapes(model, schedule.sizes) says whether a network is right
at all shapes of a schedule. This package needs torch alone. examples/ has a plain loop and a Lightning module.
"""

from mgexp.multigrid.batchnorm import (
    GroupedBatchNorm3d,
    group_batchnorm,
    set_num_groups,
    share_statistics,
)
from mgexp.multigrid.recipe import BASELINE, LONG, LONG_SHORT, SHORT, ClipCosts, Multigrid, Recipe
from mgexp.multigrid.sampler import ClipRequest, StepSampler
from mgexp.multigrid.schedule import Schedule, StepPlan, build_schedule
from mgexp.multigrid.shape_check import ShapeCheck, check_shapes

__all__ = [
    "BASELINE",
    "LONG",
    "LONG_SHORT",
    "SHORT",
    "ClipCosts",
    "ClipRequest",
    "GroupedBatchNorm3d",
    "Multigrid",
    "Recipe",
    "Schedule",
    "ShapeCheck",
    "StepPlan",
    "StepSampler",
    "build_schedule",
    "check_shapes",
    "group_batchnorm",
    "set_num_groups",
    "share_statistics",
]
