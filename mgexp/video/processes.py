"""Processes that make files: as many as are asked for, one file each at a time, gone when their parent is."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from typing import TypeVar

TASKS_PER_PROCESS = 4
"""Items handed out ahead: enough that no process waits, few enough that a stop is soon."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_processes(
    make: Callable[[Item], Result], items: Sequence[Item], num_processes: int
) -> Generator[Result, None, None]:
    """``make`` of each item, in the order in which they end; in this process where ``num_processes`` is 1."""
    if num_processes == 1:
        yield from map(make, items)
        return
    # Spawn: the same on every system, and safe where the caller has threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_processes, context, start_process) as pool:
        waiting = iter(items)
        running = _submit(pool, make, islice(waiting, TASKS_PER_PROCESS * num_processes))
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                running |= _submit(pool, make, islice(waiting, len(done)))
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _submit(
    pool: ProcessPoolExecutor, make: Callable[[Item], Result], items: Iterator[Item]
) -> set[Future[Result]]:
    return {pool.submit(make, item) for item in items}


def start_process() -> None:
    """Leaves Ctrl-C to the parent, and ends when the parent does, even if that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
