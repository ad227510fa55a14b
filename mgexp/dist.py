"""The processes of one run: which one this is, and values that all of them share."""

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
"""How long a process waits in a collective for another. Assumption: long enough for slow videos. This limit is for
processes that hang: one that fails or is killed ends all processes within 30 seconds, see ``mgexp.failure``."""

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among ``count``, of which ``local_count`` run on this machine. Rank 0 writes the files."""

    rank: int = 0
    count: int = 1
    local_rank: int = 0
    local_count: int = 1

    @property
    def is_main(self) -> bool:
        """Return whether this is rank 0, the process that logs and writes."""
        return self.rank == 0


def from_environment() -> Processes:
    """Read RANK, WORLD_SIZE and LOCAL_… of torchrun; without them there is one process."""
    count = os.environ.get("WORLD_SIZE", "1")
    return Processes(
        rank=int(os.environ.get("RANK", "0")),
        count=int(count),
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        local_count=int(os.environ.get("LOCAL_WORLD_SIZE", count)),
    )


def device_of(name: str, processes: Processes = Processes()) -> torch.device:
    """Return the device that DEVICE names (auto, cpu or cuda): this process's GPU, or the CPU.

    If DEVICE demands a GPU and there is none, this is the CPU. ``train.setup.device_problems`` reports that case.
    """
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", processes.local_rank)


@contextmanager
def joined(processes: Processes, device: torch.device) -> Iterator[None]:
    """Join the other processes for the block: with nccl between GPUs, with gloo between CPUs.

    After an error this process does not leave the group, since the others may wait in a collective:
    ``mgexp.failure`` ends them.
    """
    if device.type == "cuda":
        # Before any collective: nccl, and all code that says only "cuda", would take GPU 0 in every process.
        torch.cuda.set_device(device)
    if processes.count == 1:
        yield
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT)
    yield
    dist.destroy_process_group()


def shared(processes: Processes, model: nn.Module) -> nn.Module:
    """Wrap ``model`` so that gradients are means over the processes, and all start with the weights of rank 0."""
    if processes.count == 1:
        return model
    # A convolution of 1×1×1 has gradients in either memory format, which are the same numbers in the same order.
    warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
    with warnings.catch_warnings():  # older versions of torch lack the name that it recommends
        warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
        # Buffers are running statistics, which no training step reads. So rank 0's need not be sent at each step.
        return DistributedDataParallel(model, broadcast_buffers=False)


def any_true(
    processes: Processes, flags: tuple[bool, ...], device: torch.device
) -> tuple[bool, ...]:
    """Say for each flag whether it is true in any process. All processes get the same answer."""
    if processes.count == 1:
        return flags
    totals = torch.tensor(flags, dtype=torch.int32, device=device)
    dist.all_reduce(totals)
    return tuple(bool(total) for total in totals.tolist())


def from_main(processes: Processes, value: T) -> T:
    """Return rank 0's ``value`` in every process. It must be a plain object, since it is pickled."""
    if processes.count == 1:
        return value
    found = [value]
    dist.broadcast_object_list(found, src=0)
    return found[0]


def merge(processes: Processes, own: dict[int, str]) -> dict[int, str]:
    """Merge the entries of all processes; where a key occurs twice, the higher rank's value wins.

    All processes get the same.
    """
    return {key: value for entries in _gather(processes, own) for key, value in entries.items()}


def total(processes: Processes, own: Counter[str]) -> Counter[str]:
    """Add the counts of all processes. All processes get the same sums."""
    return sum(_gather(processes, own), Counter())


def check_same(processes: Processes, own: str, what: str) -> None:
    """Raise InputError in every process if a process has another text than rank 0. ``what`` names the text."""
    texts = _gather(processes, own)
    others = [rank for rank, text in enumerate(texts) if text != texts[0]]
    if others:
        found = (
            f"{what} of process 0 is {texts[0]}, of process {others[0]} it is {texts[others[0]]}"
        )
        raise InputError([f"{found}: all processes must see the same files"])


def sum_(processes: Processes, values: torch.Tensor) -> torch.Tensor:
    """Sum ``values`` over the processes, in place."""
    if processes.count > 1:
        dist.all_reduce(values)
    return values


def mean_(processes: Processes, values: torch.Tensor) -> torch.Tensor:
    """Replace each of ``values`` by its mean over the processes."""
    return sum_(processes, values).div_(processes.count) if processes.count > 1 else values


def max_(processes: Processes, values: torch.Tensor) -> torch.Tensor:
    """Replace each of ``values`` by the largest of all processes."""
    if processes.count > 1:
        dist.all_reduce(values, dist.ReduceOp.MAX)
    return values


def _gather(processes: Processes, own: T) -> list[T]:
    """Return the objects of all processes, by rank."""
    if processes.count == 1:
        return [own]
    found = [own] * processes.count
    dist.all_gather_object(found, own)
    return found
