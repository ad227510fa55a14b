"""From the configuration to teams of processes that train together on this machine's CPU."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mgexp import dist
from mgexp.config.keys import Config
from mgexp.data.loader import build_training_clips
from mgexp.data.records import Record
from mgexp.models.build import build_model
from mgexp.multigrid.phases import num_bn_groups
from mgexp.multigrid.schedule import StepShape
from mgexp.optim.build import build_groups, build_optimizer, set_lr
from mgexp.plan.loading import Load, loader_of
from mgexp.plan.timing import (
    LEARNING_RATE,
    ONE_GROUP,
    OURS,
    PLAIN,
    PlainStep,
    RandomClips,
    Step,
    TrainingStep,
    Way,
    plain_copy,
)
from mgexp.run.clock import Clock
from mgexp.train.checkpoint import State
from mgexp.train.precision import resolve_precision
from mgexp.train.step import Normalizer, build_step, keep_memory
from mgexp.train.task import build_task
from mgexp.video.processes import start_process
from mgexp.video.reader import Opener


class WayInProcesses:
    """What the ways that ``makers`` make do at the same time, each in a new process of ``num_threads`` threads.

    A way of ``measure_steps``: a step here is over when it is in all of them, and returns the first one's loss.
    What is raised there is raised here. ``makers`` must be picklable. The processes end with this one.
    """

    def __init__(self, makers: Sequence[Callable[[], Way]], num_threads: int) -> None:
        # Spawn: a fork would have the memory settings of this process, and break its threads.
        context = multiprocessing.get_context("spawn")
        self._pools = [ProcessPoolExecutor(1, context, start_process) for _ in makers]
        begun = [
            pool.submit(_begin, make, num_threads)
            for pool, make in zip(self._pools, makers, strict=True)
        ]
        for future in begun:
            future.result()

    def __call__(self, shape: StepShape) -> Step:
        """The step on clips of ``shape``; only the latest shape's can be made."""
        self._in_all(_prepare, shape)
        return lambda: self._in_all(_make_step)[0]

    def _in_all(self, function: Callable[..., Any], *arguments: object) -> list[Any]:
        futures = [pool.submit(function, *arguments) for pool in self._pools]
        return [future.result() for future in futures]


class WayInOwnProcess(WayInProcesses):
    """The way that ``make`` makes, in one new process with as many threads as this one."""

    def __init__(self, make: Callable[[], Way]) -> None:
        super().__init__([make], torch.get_num_threads())


@dataclass
class _Kept:
    """What the new process keeps from one call to the next."""

    way: Way
    step: Step


_KEPT = _Kept(lambda shape: lambda: None, lambda: None)


def _begin(make: Callable[[], Way], num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    _KEPT.way = make()


def _prepare(shape: StepShape) -> None:
    _KEPT.step = _KEPT.way(shape)


def _make_step() -> object:
    loss = _KEPT.step()
    return loss.item() if isinstance(loss, Tensor) else loss


def build_ways(cfg: Config, names: Iterable[str], device: torch.device) -> dict[str, Way]:
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


def build_training_step(cfg: Config, device: torch.device) -> TrainingStep:
    """The step of a run of ``cfg`` in one process, at a small learning rate."""
    model = build_model(cfg).to(device)
    optimizer = build_optimizer(cfg, model)
    set_lr(optimizer, LEARNING_RATE)
    normalizer = Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, device)
    precision = resolve_precision(cfg.TRAIN.PRECISION, device)
    precision.set_backends()  # as in a run
    state = State(model, optimizer, Clock(), scaler=precision.scaler(device))
    task = build_task(cfg)
    step = build_step(cfg, model, state, task, normalizer, precision)
    return TrainingStep(step, RandomClips(task, device))


def build_loads(
    cfg: Config, records: Sequence[Record], openers: Mapping[str, Opener]
) -> dict[str, Load]:
    """Ways to load the clips of ``records`` as training does, from where each of ``openers`` takes them."""
    return {
        name: loader_of(build_training_clips(cfg, records, opener))
        for name, opener in openers.items()
    }


def _plain(cfg: Config, device: torch.device) -> PlainStep:
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


CPU = torch.device("cpu")


def build_team(cfg: Config, num_processes: int, num_threads: int) -> WayInProcesses:
    """``num_processes`` over gloo, ``num_threads`` each, that share the clips of a shape as a run does.

    A way of ``measure_steps``, for base shapes: ``clips`` are those of the global mini-batch.
    """
    port = _free_port()
    members = [_Member(cfg, rank, num_processes, port) for rank in range(num_processes)]
    return WayInProcesses(members, num_threads)


@dataclass(frozen=True)
class _Member:
    """Makes the way of one process, in that process."""

    cfg: Config
    rank: int
    count: int
    port: int

    def __call__(self) -> Way:
        keep_memory()  # as in a run
        processes = self._join()
        ours = build_training_step(self.cfg, CPU)
        model = dist.shared(processes, ours.step.model)
        ours = replace(ours, step=replace(ours.step, model=model))

        def way(shape: StepShape) -> Step:
            groups = num_bn_groups(shape.clips, self.count, self.cfg.MULTIGRID.BN_BASE_SIZE)
            return ours(replace(shape, clips=shape.clips // self.count, num_bn_groups=groups))

        return way

    def _join(self) -> dist.Processes:
        own = {"RANK": self.rank, "WORLD_SIZE": self.count, "LOCAL_RANK": self.rank}
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.port}
        os.environ.update({name: str(value) for name, value in {**own, **meeting}.items()})
        processes = dist.from_environment()
        ExitStack().enter_context(dist.joined(processes, CPU))  # until the process ends
        return processes


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
