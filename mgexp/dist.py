"""The processes of one run: who am I, and what do we know together."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Processes:
    """This process among ``count``; rank 0 writes the files."""

    rank: int = 0
    count: int = 1
    local_rank: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this process logs and writes."""
        return self.rank == 0


def from_environment() -> Processes:
    """What torchrun says in RANK, WORLD_SIZE and LOCAL_RANK; one process where it says nothing."""
    return Processes(
        rank=int(os.environ.get("RANK", "0")),
        count=int(os.environ.get("WORLD_SIZE", "1")),
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
    )


def start(processes: Processes, device: torch.device) -> None:
    """Joins the other processes: nccl between GPUs, gloo between CPUs."""
    if processes.count > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")


def stop(processes: Processes) -> None:
    """Leaves the other processes."""
    if processes.count > 1:
        dist.destroy_process_group()


def any_true(processes: Processes, flag: bool, device: torch.device) -> bool:
    """Whether ``flag`` is true in any process: all get the same answer."""
    if processes.count == 1:
        return flag
    total = torch.tensor(int(flag), device=device)
    dist.all_reduce(total)
    return bool(total.item())


def sum_(processes: Processes, values: torch.Tensor) -> torch.Tensor:
    """``values`` summed over the processes, in place."""
    if processes.count > 1:
        dist.all_reduce(values)
    return values


def max_(processes: Processes, values: torch.Tensor) -> torch.Tensor:
    """The largest of each of ``values`` over the processes, in place."""
    if processes.count > 1:
        dist.all_reduce(values, dist.ReduceOp.MAX)
    return values


def copy_from_main(processes: Processes, module: torch.nn.Module) -> None:
    """Gives every process rank 0's weights and buffers."""
    if processes.count > 1:
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)
