"""Make, copy or check many videos in a pool of processes, one video in each process at a time.

A pool of the standard library would wait for a decoder that hangs, and would break at the first one that crashes.
pebble's pool has a time limit for each task, and replaces a process that died.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from pebble import ProcessExpired, ProcessPool

CANNOT_START = "its processes were killed at once: perhaps give fewer --processes"

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_processes(
    make: Callable[[Item], Result],
    items: Sequence[Item],
    num_processes: int,
    *,
    limit_seconds: float | None = None,
    failure: Callable[[Item, Exception], Result] | None = None,
    niceness: int = 0,
) -> Generator[Result, None, None]:
    """Call ``make`` for each item in a pool, and yield the results in the order of the items.

    With ``num_processes`` 1 and no ``failure``, ``make`` runs in this process. ``failure`` gives the result of an
    item whose call raised an error: TimeoutError after ``limit_seconds``, and pebble's ProcessExpired if the
    process died. Raises BrokenProcessPool, a RuntimeError, if processes end before they get an item.
    """
    if num_processes == 1 and failure is None:
        yield from map(make, items)
        return
    # Spawn works in the same way on every system. A fork is not safe if the caller has threads.
    context = multiprocessing.get_context("spawn")
    workers = max(1, min(num_processes, len(items)))
    # 0: a process makes any number of items. A new one would import torch again, which takes seconds.
    pool = ProcessPool(workers, 0, start_process, (niceness,), context)
    try:
        try:
            futures = [pool.schedule(make, (item,), timeout=limit_seconds) for item in items]
        # This is all that pebble says if processes cannot start.
        except RuntimeError as error:
            raise BrokenProcessPool from error
        for item, future in zip(items, futures, strict=True):
            try:
                yield future.result()
            except BrokenProcessPool:
                raise
            except Exception as error:
                if failure is None:
                    raise
                yield failure(item, error)
    finally:
        # An item may hang, so the processes are killed.
        pool.stop()  # type: ignore[no-untyped-call]
        pool.join()


def no_result(error: Exception, limit_seconds: float) -> str:
    """Say in words why ``map_in_processes`` has no result of a video, for its ``failure``."""
    if isinstance(error, FutureTimeoutError):
        return f"no result after {limit_seconds:g} s"
    if not isinstance(error, ProcessExpired):
        return f"the work on it ended with {error!r}"
    # The exit code of a process that a signal ended is the negative number of the signal.
    code = error.exitcode or 0
    ending = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
    return f"its process ended with {ending}"


def start_process(niceness: int = 0) -> None:
    """Prepare a process: leave Ctrl-C to the parent, and end when the parent ends, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(niceness)

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    # A parent that is killed cannot tell its children. So a thread of each child waits for its end.
    threading.Thread(target=end_with_parent, daemon=True).start()
