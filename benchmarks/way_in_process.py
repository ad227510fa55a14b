"""Run a way to train in a new process, for tools/bench_step.py."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from torch import Tensor

from mgexp.multigrid.schedule import StepShape
from mgexp.plan.timing import Step, Way
from mgexp.registry import OwnFile, import_file, imported
from mgexp.video.processes import start_process


def way_in_process(make: Callable[[], Way], num_threads: int) -> Way:
    """Return a way that runs the one of ``make`` in a new process of ``num_threads`` threads.

    ``make`` must be picklable. Only the step of its latest shape can be taken. An error in the process is raised
    here. The process imports the files of --import that this one has imported, and ends with this one.
    """
    # A forked process would inherit the memory settings of this process. Its threads would not work either.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, context, _start, (imported(),))
    pool.submit(_begin, make, num_threads).result()

    def way(shape: StepShape) -> Step:
        pool.submit(_prepare, shape).result()
        return lambda: pool.submit(_take_step).result()

    return way


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
