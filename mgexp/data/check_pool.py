"""Processes that check videos, each with a time limit: one that hangs is killed, one that dies is replaced.

A pool of the standard library would wait for a decoder that hangs, and break at the first one that crashes.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing.connection import Connection, wait

from mgexp.data.check import VideoCheck, check_video

Check = Callable[[str, bool], VideoCheck]


def check_videos(
    paths: Iterable[str],
    *,
    quick: bool,
    num_processes: int,
    limit_seconds: float,
    check: Check = check_video,
) -> Iterator[VideoCheck]:
    """Checks the videos in ``num_processes`` processes; yields them in the order in which they are done.

    A video without a result after ``limit_seconds`` is ``hung``; one whose process died is ``crashed``.
    Raises RuntimeError if a process ends before it was given a video.
    """
    waiting = deque(paths)
    start = partial(_Worker, check, quick, limit_seconds)
    workers = [start() for _ in range(min(num_processes, len(waiting)))]
    try:
        while workers:
            wait([worker.pipe for worker in workers], _seconds_to_wait(workers))
            for place, worker in enumerate(workers):
                found = worker.take()
                if found is not None:
                    yield found
                if worker.has_ended and waiting:
                    workers[place] = start()
                elif worker.is_idle and waiting:
                    worker.give(waiting.popleft())
                elif worker.is_idle:
                    worker.end()
            workers = [worker for worker in workers if not worker.has_ended]
    finally:
        for worker in workers:
            worker.end()


def _seconds_to_wait(workers: list[_Worker]) -> float | None:
    deadline = min(worker.deadline for worker in workers)
    return None if math.isinf(deadline) else max(0.0, deadline - time.monotonic())


class _Worker:
    """One process, and the video that it is at; it says None when it has started, then a result a video."""

    def __init__(self, check: Check, quick: bool, limit_seconds: float) -> None:
        # Spawn: the same on every system, and safe where the caller has threads.
        context = multiprocessing.get_context("spawn")
        self.pipe, other_end = context.Pipe()
        self.limit_seconds = limit_seconds
        self.deadline = math.inf
        self.path: str | None = None
        self.is_idle = False
        self.has_ended = False
        self._process = context.Process(target=_work, args=(other_end, check, quick), daemon=True)
        self._process.start()
        other_end.close()

    def give(self, path: str) -> None:
        """Starts on a video; its time runs from now."""
        self.path, self.is_idle = path, False
        self.deadline = time.monotonic() + self.limit_seconds
        self.pipe.send(path)

    def take(self) -> VideoCheck | None:
        """The result of the video that it was given, if it is there; kills the process if it is too late."""
        if self.pipe.poll():
            return self._receive()
        if time.monotonic() < self.deadline:
            return None
        self.end()
        return self._failure("hung", f"no result after {self.limit_seconds:g} s")

    def end(self) -> None:
        """Kills the process; nothing is lost, it writes no file."""
        self.has_ended, self.is_idle = True, False
        self._process.kill()
        self._process.join()
        self.pipe.close()

    def _receive(self) -> VideoCheck | None:
        try:
            found: VideoCheck | None = self.pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            self.end()
            return self._failure("crashed", f"its process ended with {_ending(self._process)}")
        self.is_idle, self.deadline, self.path = True, math.inf, None
        return found

    def _failure(self, kind: str, reason: str) -> VideoCheck:
        if self.path is None:
            raise RuntimeError(f"a process that checks videos did not start: {reason}")
        seconds = time.monotonic() - self.deadline + self.limit_seconds
        return VideoCheck(self.path, kind, reason, seconds=round(seconds, 4))


def _work(pipe: Connection, check: Check, quick: bool) -> None:
    """Checks the videos that come through ``pipe`` until it is closed; Ctrl-C is for the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The machine stays usable for what runs beside it: checking a data set takes hours.
    os.nice(10)
    pipe.send(None)
    while True:
        try:
            path = pipe.recv()
        except EOFError:
            return
        pipe.send(check(path, quick))


def _ending(process: multiprocessing.process.BaseProcess) -> str:
    code = process.exitcode or 0
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
