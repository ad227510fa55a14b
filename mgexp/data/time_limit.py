"""A time limit for a video: a video that hangs counts as unusable, and the run goes on.

Two things end the wait. First, a signal interrupts Python code, and system calls that can be
interrupted, such as reading a pipe or a socket. The worker then gives the video up and goes on. A
signal does not interrupt a loop inside a decoder. So second, the worker ends after twice the time,
and the run ends with it. When the run starts again, it leaves the video out. (Nothing ends a wait
for a file server inside the kernel, which ps shows as state D.)

A video that failed once may be read the next time, such as after a fault of a file server. So every failure is on
disk before another video takes its place: a run that was killed and resumed leaves out the same videos at the same
positions.
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
from mgexp.run.remote import FETCHING
from mgexp.video.reader import VideoError

EXIT_NOT_HANDED_ON = 74
"""Exit code of a worker that cannot hand a batch on: EX_IOERR of sysexits.h."""
EXIT_HUNG = 75
"""Exit code of a worker with a video that hangs where nothing can interrupt it: EX_TEMPFAIL of sysexits.h."""


def end_where_batches_are_lost() -> None:
    """End this worker if it cannot hand on a batch, most likely because shared memory is full.

    Python's own queue prints the error, drops the batch and goes on, and the run would wait for this batch for
    ever. (Found with torch 2.15; source: multiprocessing/queues.py, Queue._feed.)
    """

    def end(error: Exception, batch: object) -> None:
        print(f"loader worker {os.getpid()}: {error}", file=sys.stderr, flush=True)
        os._exit(EXIT_NOT_HANDED_ON)

    setattr(Queue, "_on_queue_feeder_error", staticmethod(end))  # noqa: B010 - mypy does not know it


def end_workers_at_exit() -> None:
    """Kill the workers that are left when this program ends, such as after an error."""
    # At its end, Python sends them SIGTERM and waits for them. They ignore that signal, so it would wait for ever.
    # Functions of atexit run in reverse order: the last to register is the first to run, before Python's own.
    atexit.unregister(_kill_workers)
    atexit.register(_kill_workers)


def _kill_workers() -> None:
    # torch's handler raises an error for each killed worker, which would be a second message of this program.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for child in multiprocessing.active_children():
        child.kill()


TICK_SECONDS = 0.25
"""Seconds between two looks at the wait. We count these ticks instead of reading a clock, so that the time for
which Slurm suspends a run (SIGSTOP) does not count against a video."""

Seed = tuple[int, int]
"""Seed and position in the stream of a clip; see ``mgexp.multigrid.sampler.ClipRequest``."""


@dataclass(frozen=True)
class VideoFailure:
    """The video at ``path`` took too long or failed otherwise at ``seed``; with None it is left out everywhere."""

    path: str
    seed: Seed | None


class _TimeUpError(BaseException):
    """The error that the signal raises. Decoders may take any Exception for a bad file, but not this one."""


@dataclass(frozen=True)
class TimeLimit:
    """The time that a video may take to give its frames: ``seconds``, 0 for no limit.

    The time in which a remote file is copied to this machine does not count.

    ``record``: the file to which all failures are written; with None they are not written.
    ``known``: failures of earlier starts of the run. This start leaves out the same videos at the
    same positions.
    """

    seconds: float = 0.0
    record: Path | None = None
    known: frozenset[VideoFailure] = frozenset()

    @contextmanager
    def __call__(self, path: str, seed: Seed | None = None) -> Iterator[None]:
        """Raise VideoError if the block takes too long, or failed in an earlier start of the run.

        Evaluation gives no ``seed``, so a video that fails now is tried again.
        """
        if VideoFailure(path, None) in self.known or VideoFailure(path, seed) in self.known:
            text = "failed in an earlier start of this run, so it is left out again"
            raise VideoError(path, text)
        # Python runs the handlers of signals in the main thread only, so other threads have no limit.
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
            # The signal may come just before the inner ``try``, or inside its ``finally``.
            watch.wait = None
            # A decoder whose call was interrupted may raise a VideoError about that call. It is a time-out too.
            if not wait.is_over:
                raise
            text = f"gave no frames in {self.seconds:g} s (DATA.VIDEO_TIMEOUT_SECONDS)"
            raise VideoError(path, text) from None

    def note(self, paths: Sequence[str], seed: Seed) -> None:
        """Write the videos that failed at ``seed``. Call this before the clip of another video is used.

        If no other video can be used either, the run stops, and its next start must try all of them again. So
        nothing is written then.
        """
        for path in paths:
            if self.known.isdisjoint((VideoFailure(path, None), VideoFailure(path, seed))):
                write_failure(self.record, VideoFailure(path, seed))


NO_LIMIT = TimeLimit()


def read_failures(record: Path) -> Sequence[VideoFailure]:
    """Read the failures on disk, oldest first."""
    return [
        VideoFailure(
            line["path"], None if line["seed"] is None else (line["seed"][0], line["seed"][1])
        )
        for line in read_jsonl(record)
    ]


def write_failure(record: Path | None, failure: VideoFailure) -> None:
    """Append a failure to ``record``, if there is one; several processes may do so at the same time."""
    if record is not None:
        append_jsonl(record, {"path": failure.path, "seed": failure.seed and list(failure.seed)})


@dataclass
class _Wait:
    """The main thread's wait for the video at ``path``: so far ``seconds`` of ``limit_seconds``."""

    path: str
    limit_seconds: float
    record: Path | None
    seconds: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.seconds >= self.limit_seconds


class _Watch(threading.Thread):
    """A thread that interrupts the main thread if that waits too long. It also runs while a decoder computes."""

    _started: _Watch | None = None

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.wait: _Wait | None = None
        self._process = os.getpid()

    @classmethod
    def of_this_process(cls) -> _Watch:
        """Return the thread of this process. Start a new one after a fork, which no thread survives."""
        if cls._started is None or cls._started._process != os.getpid():
            cls._started = cls()
            signal.signal(signal.SIGALRM, cls._started._interrupt)
            cls._started.start()
        return cls._started

    def run(self) -> None:
        """Interrupt the main thread at the limit; end a worker whose wait lasts twice as long as the limit."""
        main, is_worker = threading.main_thread().ident, get_worker_info() is not None
        # For mypy: only a thread that has not started has no number.
        assert main is not None
        while True:
            time.sleep(TICK_SECONDS)
            wait = self.wait
            # A copy of a remote file may take longer than a video. A server that is silent ends its wait itself.
            if wait is None or FETCHING.is_set():
                continue
            wait.seconds += TICK_SECONDS
            if is_worker and wait.seconds >= 2 * wait.limit_seconds:
                try:
                    write_failure(wait.record, VideoFailure(wait.path, None))
                finally:
                    os._exit(EXIT_HUNG)
            if wait.is_over:
                signal.pthread_kill(main, signal.SIGALRM)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Raise an error in the main thread. Each tick does so again, in case a decoder caught the error."""
        if self.wait is not None and self.wait.is_over:
            raise _TimeUpError
