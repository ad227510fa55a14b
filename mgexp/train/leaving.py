"""How all processes of a run leave an evaluation that a signal stops: together, or some would wait for others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from mgexp import dist
from mgexp.dist import Processes
from mgexp.stop import Interrupted, StopRequest

Item = TypeVar("Item")


def watched_together(
    stop: StopRequest, items: Iterable[Item], processes: Processes, device: torch.device
) -> Iterator[Item]:
    """The items, of which every process has equally many; Interrupted in all after a signal to one.

    Between them the processes may wait for each other.
    """
    for item in items:
        (is_over,) = dist.any_true(processes, (stop.requested,), device)
        if is_over:
            raise Interrupted(stop.signal_name or "a signal to another process")
        yield item


@contextmanager
def leaving_together(processes: Processes, device: torch.device) -> Iterator[None]:
    """Behind the block, all processes leave where Interrupted ended it in one: it is raised in each.

    Inside, none may wait for another. So the processes agree before they put together what each has found.
    """
    name = None
    try:
        yield
    except Interrupted as error:
        name = error.signal_name
    (is_over,) = dist.any_true(processes, (name is not None,), device)
    if is_over:
        raise Interrupted(name or "a signal to another process")
