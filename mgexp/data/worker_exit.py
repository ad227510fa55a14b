"""How a loader's worker ends where it could only hang: with an exit code that says why."""

from __future__ import annotations

import os
import sys
from multiprocessing.queues import Queue

EXIT_NOT_HANDED_ON = 74
"""A batch that is loaded cannot be handed on: EX_IOERR of sysexits.h."""
EXIT_HUNG = 75
"""A video hangs where nothing can interrupt it: EX_TEMPFAIL of sysexits.h."""


def end_where_batches_are_lost() -> None:
    """Ends this worker when a batch cannot be handed on, most likely since shared memory is full.

    A queue of the standard library prints the error, drops the batch and goes on, so that the run would wait for
    it for ever. (Found with torch 2.15; source: multiprocessing/queues.py, Queue._feed.)
    """
    setattr(Queue, "_on_queue_feeder_error", staticmethod(_end))  # noqa: B010 - types do not know it


def _end(error: Exception, batch: object) -> None:
    print(f"loader worker {os.getpid()}: {error}", file=sys.stderr, flush=True)
    os._exit(EXIT_NOT_HANDED_ON)
