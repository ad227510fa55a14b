"""From the configuration to teams of processes that train together on this machine's CPU."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch
from fvcore.common.config import CfgNode

from mgexp import dist
from mgexp.multigrid.phases import num_bn_groups
from mgexp.plan.own_process import WayInProcesses
from mgexp.plan.step_shapes import StepShape
from mgexp.plan.step_time import Step, Way
from mgexp.plan.ways.build import build_training_step
from mgexp.train.memory import keep_memory

CPU = torch.device("cpu")


def build_team(cfg: CfgNode, num_processes: int, num_threads: int) -> WayInProcesses:
    """``num_processes`` over gloo, ``num_threads`` each, that share the clips of a shape as a run does.

    A way of ``measure_steps``, for base shapes: ``clips`` are those of the global mini-batch.
    """
    port = _free_port()
    members = [_Member(cfg, rank, num_processes, port) for rank in range(num_processes)]
    return WayInProcesses(members, num_threads)


@dataclass(frozen=True)
class _Member:
    """Makes the way of one process, in that process."""

    cfg: CfgNode
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
