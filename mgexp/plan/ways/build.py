"""From the configuration to the ways of making a training step, and of loading its clips."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import torch
from fvcore.common.config import CfgNode

from mgexp.data.build import build_training_clips
from mgexp.data.opening import Opener
from mgexp.data.records import Record
from mgexp.models.build import build_model
from mgexp.optim.build import build_groups, build_optimizer, set_lr
from mgexp.plan.measure import Load, loader_of
from mgexp.plan.own_process import WayInOwnProcess
from mgexp.plan.step_time import Way
from mgexp.plan.steppers import (
    LEARNING_RATE,
    ONE_GROUP,
    OURS,
    PLAIN,
    PlainStep,
    RandomClips,
    TrainingStep,
    plain_copy,
)
from mgexp.record.clock import Clock
from mgexp.train.build import build_precision, build_step, build_task
from mgexp.train.checkpoint import State
from mgexp.train.memory import keep_memory
from mgexp.train.step import Normalizer


def build_ways(cfg: CfgNode, names: Iterable[str], device: torch.device) -> dict[str, Way]:
    """The ways of ``names``, in their order, from the same weights; ``names`` are some of WAYS.

    ``ours``: as training does it. ``one_group``: ours with all clips in one BN group; it shares the model of ours.
    ``plain``: contiguous memory, ``nn.BatchNorm3d``, eager, fp32; on a CPU in a process of its own, since
    what becomes of freed memory is a setting of a process, and plain training does not make it.
    """
    if device.type == "cpu":
        keep_memory()  # as in a run
    ours = build_training_step(cfg, device)
    plain = partial(_plain, cfg, device)
    makers: dict[str, Callable[[], Way]] = {
        OURS: lambda: ours,
        PLAIN: lambda: WayInOwnProcess(plain) if device.type == "cpu" else plain(),
        ONE_GROUP: lambda: ours.in_one_group,
    }
    return {name: makers[name]() for name in names}


def build_training_step(cfg: CfgNode, device: torch.device) -> TrainingStep:
    """The step of a run of ``cfg`` in one process, at a small learning rate."""
    model = build_model(cfg).to(device)
    optimizer = build_optimizer(cfg, model)
    set_lr(optimizer, LEARNING_RATE)
    normalizer = Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, device)
    precision = build_precision(cfg, device)
    precision.set_backends()  # as in a run
    state = State(model, optimizer, Clock(), scaler=precision.scaler(device))
    step = build_step(cfg, model, state, normalizer, precision)
    return TrainingStep(step, RandomClips(build_task(cfg), device))


def build_loads(
    cfg: CfgNode, records: Sequence[Record], openers: Mapping[str, Opener]
) -> dict[str, Load]:
    """Ways to load the clips of ``records`` as training does, from where each of ``openers`` takes them."""
    return {
        name: loader_of(build_training_clips(cfg, records, opener))
        for name, opener in openers.items()
    }


def _plain(cfg: CfgNode, device: torch.device) -> PlainStep:
    ours = build_training_step(cfg, device)
    model = plain_copy(ours.step.model)
    optimizer = torch.optim.SGD(
        build_groups(cfg, model),
        lr=LEARNING_RATE,
        momentum=cfg.SOLVER.MOMENTUM,
        nesterov=cfg.SOLVER.NESTEROV,
        foreach=False,
    )
    set_lr(optimizer, LEARNING_RATE)
    colours, norm = (cfg.DATA.MEAN, cfg.DATA.STD), cfg.SOLVER.CLIP_GRAD_L2NORM
    return PlainStep(model, optimizer, *colours, ours.step.loss, ours.data, norm)
