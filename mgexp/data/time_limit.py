"""A time limit for a video: one that hangs counts as unusable, and the run goes on.

Two things end the wait. A signal interrupts Python code, and calls of the system that can be interrupted, such as
the reading of a pipe or a socket: the video is given up, and the worker goes on. What no signal reaches, such as a
loop inside a decoder, is ended after twice the time with the worker around it, and with it the run; started
again, the run leaves the video out. (Neither ends a wait for a file server in the kernel, state D of ps: nothing
can.)

What took too long may not do so the next time, so every time-out is on disk before another video takes its place:
a run that goes on after a kill leaves out the same videos at the same positions.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path
from types import FrameType

from torch.utils.data import get_worker_info

from mgexp.run.files import append_jsonl, read_jsonl
from mgexp.video.reader import VideoError

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


TICK_SECONDS = 0.25
"""How often the time is looked at. It is counted in ticks, not read off a clock: while Slurm suspends a run by
SIGSTOP, no video takes long."""

Seed = tuple[int, int]
"""Seed and position in the stream of a clip; see ``mgexp.data.clips.Request``."""


@dataclass(frozen=True)
class Timeout:
    """The video at ``path`` took too long at ``seed``; None: at any place of the run."""

    path: str
    seed: Seed | None


class _TimeUpError(BaseException):
    """Raised by the signal in whatever runs; no Exception, so that no decoder takes it for a bad file."""


@dataclass(frozen=True)
class TimeLimit:
    """How long it may take to get the frames of a video: ``seconds``, 0 for as long as it likes.

    ``record``: the file that holds the time-outs, None to keep none. ``known``: those of earlier starts that are
    to be so again.
    """

    seconds: float = 0.0
    record: Path | None = None
    known: frozenset[Timeout] = frozenset()

    @contextmanager
    def __call__(self, path: str, seed: Seed | None = None) -> Iterator[None]:
        """Raises VideoError where the block takes too long, or took before. No limit but in a main thread.

        Where nothing is drawn there is no ``seed``: what is too slow now may be tried again.
        """
        if Timeout(path, None) in self.known or Timeout(path, seed) in self.known:
            raise VideoError(
                path, "hung in an earlier start of this run, and is left out as it was then"
            )
        if not self.seconds or threading.current_thread() is not threading.main_thread():
            yield
            return
        watch, wait = _Watch.of_this_process(), _Wait(path, self.seconds, self.record)
        try:
            watch.wait = wait
            try:
                yield
            finally:
                watch.wait = None
        except (_TimeUpError, VideoError):
            watch.wait = None
            if (
                not wait.is_over
            ):  # else the decoder tells of the interrupted call, and not of why it was
                raise
            if seed is not None:
                write_timeout(self.record, Timeout(path, seed))
            text = f"gave no frames in {self.seconds:g} s (DATA.VIDEO_TIMEOUT_SECONDS)"
            raise VideoError(path, text) from None


NO_LIMIT = TimeLimit()


def read_timeouts(record: Path) -> Sequence[Timeout]:
    """Those on disk, in their order."""
    return [
        Timeout(line["path"], None if line["seed"] is None else (line["seed"][0], line["seed"][1]))
        for line in read_jsonl(record)
    ]


def write_timeout(record: Path | None, timeout: Timeout) -> None:
    """One short line: several processes may append at the same time."""
    if record is not None:
        append_jsonl(record, {"path": timeout.path, "seed": timeout.seed and list(timeout.seed)})


@dataclass
class _Wait:
    """The main thread waits for the frames of the video at ``path``, ``seconds`` so far of ``limit_seconds``."""

    path: str
    limit_seconds: float
    record: Path | None
    seconds: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.seconds >= self.limit_seconds


class _Watch(threading.Thread):
    """Interrupts the main thread where it waits too long. Decoders let other threads run meanwhile."""

    _started: _Watch | None = None

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.wait: _Wait | None = None
        self._process = os.getpid()

    @classmethod
    def of_this_process(cls) -> _Watch:
        """The one that is there, or a new one: threads do not survive a fork."""
        if cls._started is None or cls._started._process != os.getpid():
            cls._started = cls()
            signal.signal(signal.SIGALRM, cls._started._interrupt)
            cls._started.start()
        return cls._started

    def run(self) -> None:
        """Ends a worker that an interrupt does not bring back: it has no other."""
        main, is_worker = threading.main_thread().ident, get_worker_info() is not None
        assert main is not None  # it runs
        while True:
            time.sleep(TICK_SECONDS)
            wait = self.wait
            if wait is None:
                continue
            wait.seconds += TICK_SECONDS
            if is_worker and wait.seconds >= 2 * wait.limit_seconds:
                write_timeout(wait.record, Timeout(wait.path, None))
                os._exit(EXIT_HUNG)
            if wait.is_over:
                signal.pthread_kill(main, signal.SIGALRM)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """It comes again with every tick, should something take it for an error of its own."""
        if self.wait is not None and self.wait.is_over:
            raise _TimeUpError
