"""How a loader's workers end where they, or the program that waits for them, could only hang."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
from multiprocessing.queues import Queue

EXIT_NOT_HANDED_ON = 74
"""Exit code: a batch that is loaded cannot be handed on: EX_IOERR of sysexits.h."""
EXIT_HUNG = 75
"""Exit code: a video hangs where nothing can interrupt it: EX_TEMPFAIL of sysexits.h."""


def end_where_batches_are_lost() -> None:
    """Ends this worker when a batch cannot be handed on, most likely since shared memory is full.

    A queue of the standard library prints the error, drops the batch and goes on, so that the run would wait for
    it for ever. (Found with torch 2.15; source: multiprocessing/queues.py, Queue._feed.)
    """
    setattr(Queue, "_on_queue_feeder_error", staticmethod(_end))  # noqa: B010 - types do not know it


def end_workers_at_exit() -> None:
    """Kills the workers that are left when this program ends, as after an error.

    Python asks them to end, by a signal that they leave to their parent, and would then wait for them for ever.
    """
    atexit.unregister(_kill_workers)
    atexit.register(_kill_workers)


def _kill_workers() -> None:
    for child in multiprocessing.active_children():
        child.kill()


def _end(error: Exception, batch: object) -> None:
    print(f"loader worker {os.getpid()}: {error}", file=sys.stderr, flush=True)
    os._exit(EXIT_NOT_HANDED_ON)
