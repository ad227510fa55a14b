"""The processes of one run: who am I, and what do we know together."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mgexp.errors import InputError

COLLECTIVE_TIMEOUT = timedelta(minutes=15)
"""How long a process waits for another that lives: for one whose videos load slowly, but not for one that hangs.
Assumption. One that fails or is killed ends all within seconds: ``mgexp.failure``."""

T = TypeVar("T")


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

    After an error it does not leave: the others may wait in a collective. ``mgexp.failure`` ends them.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if processes.count == 1:
        yield
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT)
    yield
    dist.destroy_process_group()


def shared(processes: Processes, model: nn.Module) -> nn.Module:
    """``model`` with gradients that are the means over the processes, and everywhere the weights of the first."""
    if processes.count == 1:
        return model
    # A convolution of 1×1×1 has gradients in either memory format, which are the same numbers in the same order.
    warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
    with warnings.catch_warnings():  # older versions of torch lack the name that it recommends
        warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
        return DistributedDataParallel(model, broadcast_buffers=False)


def any_true(
    processes: Processes, flags: tuple[bool, ...], device: torch.device
) -> tuple[bool, ...]:
    """For each flag, whether it is true in any process: all get the same answer."""
    if processes.count == 1:
        return flags
    totals = torch.tensor(flags, dtype=torch.int32, device=device)
    dist.all_reduce(totals)
    return tuple(bool(total) for total in totals.tolist())


def from_main(processes: Processes, value: T) -> T:
    """Rank 0's ``value``, a plain one, in every process."""
    if processes.count == 1:
        return value
    found = [value]
    dist.broadcast_object_list(found, src=0)
    return found[0]


def merge(processes: Processes, own: dict[int, str]) -> dict[int, str]:
    """The entries of all processes, those of lower ranks first: all get the same."""
    return {key: value for entries in _gather(processes, own) for key, value in entries.items()}


def total(processes: Processes, own: Counter[str]) -> Counter[str]:
    """The counts of all processes: all get the same."""
    return sum(_gather(processes, own), Counter())


def check_same(processes: Processes, own: str, what: str) -> None:
    """Raises InputError in every process where one has another text than the first: ``what`` differs."""
    texts = _gather(processes, own)
    others = [rank for rank, text in enumerate(texts) if text != texts[0]]
    if others:
        raise InputError(
            [
                f"{what} of process 0 is {texts[0]}, of process {others[0]} it is {texts[others[0]]}: "
                "all processes must see the same files"
            ]
        )


def sum_(processes: Processes, values: torch.Tensor) -> torch.Tensor:
    """``values`` summed over the processes, in place."""
    if processes.count > 1:
        dist.all_reduce(values)
    return values


def mean_(processes: Processes, values: torch.Tensor) -> torch.Tensor:
    """The mean of each of ``values`` over the processes, in place."""
    return sum_(processes, values).div_(processes.count) if processes.count > 1 else values


def max_(processes: Processes, values: torch.Tensor) -> torch.Tensor:
    """The largest of each of ``values`` over the processes, in place."""
    if processes.count > 1:
        dist.all_reduce(values, dist.ReduceOp.MAX)
    return values


def _gather(processes: Processes, own: T) -> list[T]:
    """That of each process, by rank."""
    if processes.count == 1:
        return [own]
    found = [own] * processes.count
    dist.all_gather_object(found, own)
    return found
