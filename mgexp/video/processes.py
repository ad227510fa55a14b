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
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import TypeVar

TASKS_PER_PROCESS = 2
"""Items handed out ahead, so that no process waits for its next one."""

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
    """Yield ``make`` of each item, in the order in which they end.

    With ``num_processes`` 1 and no ``failure`` the items are made in this process. ``failure`` gives the result of
    an item that has none: TimeoutError after ``limit_seconds``, pebble's ProcessExpired if the process died, or
    whatever ``make`` raised. Without it these errors are raised here. Raises BrokenProcessPool, a RuntimeError, if
    processes end before they were given an item.
    """
    if num_processes == 1 and failure is None:
        yield from map(make, items)
        return
    from pebble import (
        ProcessPool,  # here, since every run imports this module for ``start_process``
    )

    # Spawn: the same on every system, and safe where the caller has threads.
    context = multiprocessing.get_context("spawn")
    workers = max(1, min(num_processes, len(items)))
    pool = ProcessPool(workers, 0, start_process, (niceness,), context)
    waiting = iter(items)
    running: dict[Future[Result], Item] = {}

    def hand_out(num: int) -> None:
        for item in islice(waiting, num):
            running[pool.schedule(make, (item,), timeout=limit_seconds)] = item

    try:
        hand_out(TASKS_PER_PROCESS * workers)
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            hand_out(len(done))
            for future in done:
                item = running.pop(future)
                try:
                    yield future.result()
                except BrokenProcessPool:
                    raise
                except Exception as error:
                    if failure is None:
                        raise
                    yield failure(item, error)
    finally:
        # What has a time limit may hang and is killed; the rest ends soon, and leaves no file half-written.
        if limit_seconds is None:
            pool.close()  # type: ignore[no-untyped-call]
        else:
            pool.stop()  # type: ignore[no-untyped-call]
        pool.join()


def start_process(niceness: int = 0) -> None:
    """Prepare a process: leave Ctrl-C to the parent, and end when the parent does, even if that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(niceness)

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    # A thread, since a parent that is killed can tell its children nothing.
    threading.Thread(target=end_with_parent, daemon=True).start()
