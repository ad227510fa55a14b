"""A way to train in a process of its own, so that it has its own memory and settings."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from mgexp.data.processes import start_process
from mgexp.plan.step_shapes import StepShape
from mgexp.plan.step_time import Step, Way


class WayInOwnProcess:
    """The way that ``make`` makes, in a new process with as many threads as this one. A way of ``measure_steps``.

    ``make`` must be picklable. A step here waits for the one there, and returns its loss; what is raised there is
    raised here. The process ends with this one.
    """

    def __init__(self, make: Callable[[], Way]) -> None:
        # Spawn: a fork would have the memory settings of this process, and break its threads.
        self._process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), start_process)
        self._process.submit(_begin, make, torch.get_num_threads()).result()

    def __call__(self, shape: StepShape) -> Step:
        """The step on clips of ``shape``; only the latest shape's can be made."""
        self._process.submit(_prepare, shape).result()
        return lambda: self._process.submit(_make_step).result()


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
