"""Say which process of a run this is, and exchange values between its processes."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from mgexp.errors import InputError

COLLECTIVE_TIMEOUT = timedelta(minutes=15)
"""How long a process waits in a collective for another. Assumption: long enough for slow videos. This limit is
only for a process that hangs. If one fails or is killed, torchrun or srun ends all."""

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
        return self.rank == 0


def from_environment() -> Processes:
    """Read the variables of torchrun. Without them there is one process."""
    count = os.environ.get("WORLD_SIZE", "1")
    return Processes(
        rank=int(os.environ.get("RANK", "0")),
        count=int(count),
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        local_count=int(os.environ.get("LOCAL_WORLD_SIZE", count)),
    )


def launcher_problems(is_shared: bool) -> Iterator[str]:
    """Yield a problem if processes that share a run were started alone, or the other way round."""
    if is_shared and "RANK" not in os.environ:
        yield "--launcher torchrun: no RANK is set; start it with torchrun"
    elif not is_shared and from_environment().count > 1:
        started = f"{from_environment().count} processes were started (WORLD_SIZE)"
        yield f"{started}, and each would train alone: add --launcher torchrun"


def device_of(name: str, processes: Processes = Processes()) -> torch.device:
    """Return the device that DEVICE names: the GPU of this process, or the CPU, also if there is no GPU."""
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", processes.local_rank)


def device_problems(
    device: str, num_gpus: int, compile_mode: str = "off", num_processes: int = 1
) -> Iterator[str]:
    """Yield a problem if a GPU was asked for and there is none, or too few, or if TRAIN.COMPILE needs one."""
    if device == "cuda" and not num_gpus:
        yield "DEVICE = cuda, but torch finds no GPU: see nvidia-smi"
    elif device != "cpu" and 0 < num_gpus < num_processes:
        yield f"{num_processes} processes need as many GPUs: there are {num_gpus}"
    # On a CPU torch would compile without graphs, and say nothing.
    elif compile_mode == "cuda_graphs" and (device == "cpu" or not num_gpus):
        yield "TRAIN.COMPILE = cuda_graphs, but the device is a CPU"
    # Source of the name: torch/_inductor/config.py, cpp.cxx.
    elif compile_mode != "off" and not num_gpus and not shutil.which(os.environ.get("CXX", "g++")):
        yield f"TRAIN.COMPILE = {compile_mode}, but there is no C++ compiler"


@contextmanager
def joined(processes: Processes, device: torch.device) -> Iterator[None]:
    """Join the other processes for the block: with nccl between GPUs, with gloo between CPUs."""
    if device.type == "cuda":
        # Do this before any collective. Without it, nccl and all code that says only "cuda" would use GPU 0 in
        # every process.
        torch.cuda.set_device(device)
    if processes.count == 1:
        yield
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT)
    # After an error the group must stay, because others may wait in a collective. The launcher ends them.
    yield
    dist.destroy_process_group()


def shared(processes: Processes, model: nn.Module, *, in_bf16: bool = False) -> nn.Module:
    """Wrap ``model`` so that gradients, sent ``in_bf16``, are means, and all start with the weights of rank 0."""
    if processes.count == 1:
        return model
    # DDP warns about strides. For a convolution of 1×1×1, both memory formats hold the same numbers in the same
    # order, so the warning does not matter.
    warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
    # New versions of torch recommend another name for `broadcast_buffers`, which older versions do not have.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
        # Buffers are running statistics. No training step reads them, so rank 0 need not send its own at each
        # step.
        model = DistributedDataParallel(model, broadcast_buffers=False)
    if in_bf16:
        model.register_comm_hook(None, bf16_compress_hook)
    return model


def any_true(
    processes: Processes, flags: tuple[bool, ...], device: torch.device
) -> tuple[bool, ...]:
    """Return for each flag whether it is true in any process."""
    if processes.count == 1:
        return flags
    # nccl has no logical or, so the flags are added.
    totals = torch.tensor(flags, dtype=torch.int32, device=device)
    dist.all_reduce(totals)
    return tuple(bool(total) for total in totals.tolist())


def from_main(processes: Processes, value: T) -> T:
    """Return rank 0's ``value`` in every process. It must be a plain object, because it is pickled."""
    if processes.count == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def merge(processes: Processes, own: dict[int, str]) -> dict[int, str]:
    """Merge the entries of all processes. If a key occurs twice, take the value of the higher rank."""
    if processes.count == 1:
        return own
    gathered = [own] * processes.count
    dist.all_gather_object(gathered, own)
    return {key: value for entries in gathered for key, value in entries.items()}


def check_same(processes: Processes, own: str, what: str) -> None:
    """Raise InputError in every process if one of them has another text than rank 0. ``what`` names the text."""
    texts = merge(processes, {processes.rank: own})
    for rank, text in texts.items():
        if text != texts[0]:
            raise InputError([f"{what} of process 0 is {texts[0]}, of process {rank} it is {text}"])


def sum_(processes: Processes, values: torch.Tensor) -> torch.Tensor:
    """Sum ``values`` over the processes, in place."""
    if processes.count > 1:
        dist.all_reduce(values)
    return values


def mean_(processes: Processes, values: torch.Tensor) -> torch.Tensor:
    """Replace each of ``values`` by its mean over the processes."""
    return sum_(processes, values).div_(processes.count)


def max_(processes: Processes, values: torch.Tensor) -> torch.Tensor:
    """Replace each of ``values`` by the largest of all processes."""
    if processes.count > 1:
        dist.all_reduce(values, dist.ReduceOp.MAX)
    return values
