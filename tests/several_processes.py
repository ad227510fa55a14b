"""Functions that are called in several processes, which meet over gloo."""

import os
import socket
from pathlib import Path

import torch
import torch.multiprocessing as mp

from mgexp import dist
from mgexp.dist import Processes


def meeting():
    """The variables of the environment by which processes on this machine find each other."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def in_processes(function, count, folder, *arguments):
    """Call ``function(processes, folder, *arguments)`` in ``count`` processes; return all results."""
    if count == 1:
        return [function(Processes(), folder, *arguments)]
    mp.spawn(_run, (function, count, meeting(), folder, arguments), nprocs=count)
    return [torch.load(Path(folder) / f"{rank}.pt") for rank in range(count)]


def _run(rank, function, count, found, folder, arguments):
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count}
    os.environ.update({name: str(value) for name, value in {**own, **found}.items()})
    torch.set_num_threads(1)
    processes = dist.from_environment()
    with dist.joined(processes, torch.device("cpu")):
        torch.save(function(processes, Path(folder) / str(rank), *arguments), f"{folder}/{rank}.pt")
