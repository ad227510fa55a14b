"""The processes of one run: who am I, and what do we know together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist

Value = TypeVar("Value")


@dataclass(frozen=True)
class Processes:
    """This process among ``count``, ``local_count`` of them on this machine; rank 0 writes the files."""

    rank: int = 0
    count: int = 1
    local_rank: int = 0
    local_count: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process logs and writes."""
        return self.rank == 0


def from_environment() -> Processes:
    """What torchrun says in RANK, WORLD_SIZE and LOCAL_…; one process where it says nothing."""
    count = os.environ.get("WORLD_SIZE", "1")
    return Processes(
        rank=int(os.environ.get("RANK", "0")),
        count=int(count),
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        local_count=int(os.environ.get("LOCAL_WORLD_SIZE", count)),
    )


def device_of(name: str, processes: Processes = Processes()) -> torch.device:
    """The device that DEVICE names, auto, cpu or cuda: this process's GPU where there is one and it is allowed.

    Where one is demanded and there is none it is the CPU: ``device_problems`` says so before.
    """
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", processes.local_rank)


@contextmanager
def joined(processes: Processes, device: torch.device) -> Iterator[None]:
    """Joins the other processes, and leaves them at the end: nccl between GPUs, gloo between CPUs.

    After an error it does not leave: the others may wait in a collective, and torchrun ends them.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if processes.count == 1:
        yield
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    yield
    dist.destroy_process_group()


def any_true(
    processes: Processes, flags: tuple[bool, ...], device: torch.device
) -> tuple[bool, ...]:
    """For each flag, whether it is true in any process: all get the same answer."""
    if processes.count == 1:
        return flags
    totals = torch.tensor(flags, dtype=torch.int32, device=device)
    dist.all_reduce(totals)
    return tuple(bool(total) for total in totals.tolist())


def from_main(processes: Processes, value: Value) -> Value:
    """Rank 0's ``value``, a plain one, in every process."""
    if processes.count == 1:
        return value
    found = [value]
    dist.broadcast_object_list(found, src=0)
    return found[0]


def merge(processes: Processes, own: dict[int, str]) -> dict[int, str]:
    """The entries of all processes, those of lower ranks first: all get the same."""
    if processes.count == 1:
        return own
    found: list[dict[int, str]] = [{} for _ in range(processes.count)]
    dist.all_gather_object(found, own)
    return {key: value for entries in found for key, value in entries.items()}


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
