"""Run ways to train in new processes, for tools/bench_step.py and two_at_once.py."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from torch import Tensor

from mgexp.multigrid.schedule import StepShape
from mgexp.plan.timing import Step, Way
from mgexp.registry import OwnFile, import_file, imported
from mgexp.video.processes import start_process


class WayInProcesses:
    """A way that runs several ways at the same time, each in a new process of ``num_threads`` threads.

    ``makers`` make the ways, and must be picklable. A step ends when the steps in all processes have ended. It
    returns the loss of the first process. An error in a process is raised here. ``close`` ends the processes.
    Without it, they end with this process. They import the files of --import that this process has imported.
    """

    def __init__(self, makers: Sequence[Callable[[], Way]], num_threads: int) -> None:
        # A forked process would inherit the memory settings of this process. Its threads would not work either.
        context = multiprocessing.get_context("spawn")
        # Each way has a pool of its own. A pool of several processes would give a call to any of them.
        self._pools = [ProcessPoolExecutor(1, context, _start, (imported(),)) for _ in makers]
        begun = [
            pool.submit(_begin, make, num_threads)
            for pool, make in zip(self._pools, makers, strict=True)
        ]
        for future in begun:
            future.result()

    def __call__(self, shape: StepShape) -> Step:
        """Return the step on clips of ``shape``. Only the step of the latest shape can be taken."""
        self._in_all(_prepare, shape)
        return lambda: self._in_all(_take_step)[0]

    def close(self) -> None:
        """End the processes."""
        for pool in self._pools:
            pool.shutdown()

    def _in_all(self, function: Callable[..., Any], *arguments: object) -> list[Any]:
        # Start all before waiting for any, because two_at_once.py measures them beside each other.
        futures = [pool.submit(function, *arguments) for pool in self._pools]
        return [future.result() for future in futures]


_KEPT: dict[str, Any] = {}
"""The way and the step that a new process keeps from one call to the next."""


# A pool pickles a function by its name, so these four must be at the top level of the module.
def _start(files: tuple[OwnFile, ...]) -> None:
    start_process()
    for file in files:
        import_file(file.path, file.digest)


def _begin(make: Callable[[], Way], num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    _KEPT["way"] = make()


def _prepare(shape: StepShape) -> None:
    _KEPT["step"] = _KEPT["way"](shape)


def _take_step() -> object:
    loss = _KEPT["step"]()
    # A GPU computes asynchronously. item() waits for it, so the time of the step includes its work.
    return loss.item() if isinstance(loss, Tensor) else loss
