"""Ways to train in processes of their own, so that these have their own memory and settings."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mgexp.data.processes import start_process
from mgexp.plan.step_shapes import StepShape
from mgexp.plan.step_time import Step, Way


class WayInProcesses:
    """What the ways that ``makers`` make do at the same time, each in a new process of ``num_threads`` threads.

    A way of ``measure_steps``: a step here is over when it is in all of them, and returns the first one's loss.
    What is raised there is raised here. ``makers`` must be picklable. The processes end with this one.
    """

    def __init__(self, makers: Sequence[Callable[[], Way]], num_threads: int) -> None:
        # Spawn: a fork would have the memory settings of this process, and break its threads.
        context = multiprocessing.get_context("spawn")
        self._pools = [ProcessPoolExecutor(1, context, start_process) for _ in makers]
        begun = [
            pool.submit(_begin, make, num_threads)
            for pool, make in zip(self._pools, makers, strict=True)
        ]
        for future in begun:
            future.result()

    def __call__(self, shape: StepShape) -> Step:
        """The step on clips of ``shape``; only the latest shape's can be made."""
        self._in_all(_prepare, shape)
        return lambda: self._in_all(_make_step)[0]

    def _in_all(self, function: Callable[..., Any], *arguments: object) -> list[Any]:
        futures = [pool.submit(function, *arguments) for pool in self._pools]
        return [future.result() for future in futures]


class WayInOwnProcess(WayInProcesses):
    """The way that ``make`` makes, in one new process with as many threads as this one."""

    def __init__(self, make: Callable[[], Way]) -> None:
        super().__init__([make], torch.get_num_threads())


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
