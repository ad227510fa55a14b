"""Videos that fail, and videos that take too long.

A video that fails is replaced by another. It may be read the next time, such as after a fault of a file server.
So its failure is on disk before another video takes its place, and a run that was killed and resumed replaces the
same videos at the same positions.

A video that takes too long ends the run. It is never replaced, because how long it takes depends on the machine.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from torch.utils.data import get_worker_info

from mgexp.run.files import append_jsonl, read_jsonl
from mgexp.video.reader import VideoError

EXIT_HUNG = 75
"""Exit code of a worker with a video that takes too long: EX_TEMPFAIL of sysexits.h."""

TICK_SECONDS = 0.25
"""Seconds between two looks at the wait. We count these ticks instead of reading a clock, so that the time for
which Slurm suspends a run (SIGSTOP) does not count against a video."""

Seed = tuple[int, int]
"""Seed and position in the stream of a clip; see ``mgexp.multigrid.sampler.ClipRequest``."""


@dataclass(frozen=True)
class VideoFailure:
    """The video at ``path`` failed at ``seed``. With None it took too long, and ended the run."""

    path: str
    seed: Seed | None


@dataclass(frozen=True)
class TimeLimit:
    """The time that a video may take to give its frames: ``seconds``, 0 for no limit.

    ``record``: the file to which all failures are written; with None they are not written.
    ``known``: failures of earlier starts of the run. This start replaces the same videos at the same positions.
    """

    seconds: float = 0.0
    record: Path | None = None
    known: frozenset[VideoFailure] = frozenset()

    @contextmanager
    def __call__(self, path: str, seed: Seed | None = None) -> Iterator[None]:
        """End this process if the block takes too long. Raise VideoError if it failed in an earlier start.

        Evaluation gives no ``seed``.
        """
        if seed is not None and VideoFailure(path, seed) in self.known:
            raise VideoError(
                path, "failed in an earlier start of this run, so it is left out again"
            )
        if not self.seconds:
            yield
            return
        watch = _watch_of(os.getpid())
        watch.wait = _Wait(path, self.seconds, self.record)
        try:
            yield
        finally:
            watch.wait = None

    def note(self, paths: Sequence[str], seed: Seed) -> None:
        """Write the videos that failed at ``seed``. Call this before the clip of another video is used."""
        # If no other video can be used either, the run stops, and its next start must try all of them again. So
        # nothing is written then.
        for path in paths:
            if VideoFailure(path, seed) not in self.known:
                write_failure(self.record, VideoFailure(path, seed))


NO_LIMIT = TimeLimit()


def read_failures(record: Path) -> list[VideoFailure]:
    """Read the failures on disk, oldest first."""
    return [
        VideoFailure(line["path"], line["seed"] and (line["seed"][0], line["seed"][1]))
        for line in read_jsonl(record)
    ]


def write_failure(record: Path | None, failure: VideoFailure) -> None:
    """Append a failure to ``record``, if there is one; several processes may do so at the same time."""
    if record is not None:
        append_jsonl(record, {"path": failure.path, "seed": failure.seed and list(failure.seed)})


def too_slow(path: str) -> str:
    """Name a video that took too long, and the command that quarantines it."""
    return (
        f"{path} gave no frames within DATA.VIDEO_TIMEOUT_SECONDS. To leave it out, give the command "
        f"`echo {shlex.quote(path)} >> quarantine.txt`, and start the run again with "
        "DATA.QUARANTINE quarantine.txt --override"
    )


@dataclass
class _Wait:
    """The wait for the video at ``path``: so far ``seconds`` of ``limit_seconds``."""

    path: str
    limit_seconds: float
    record: Path | None
    seconds: float = 0.0


class _Watch:
    """A thread that ends this process if a video takes too long. It also runs while a decoder computes."""

    def __init__(self) -> None:
        self.wait: _Wait | None = None
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        while True:
            time.sleep(TICK_SECONDS)
            # One look: the main thread may end this wait, and begin another one, at any moment.
            wait = self.wait
            if wait is None:
                continue
            wait.seconds += TICK_SECONDS
            if wait.seconds >= wait.limit_seconds:
                _end_process(wait)


@lru_cache(maxsize=1)
def _watch_of(process: int) -> _Watch:
    """Start the watch of this process. A fork has another number, and no thread survives it."""
    return _Watch()


def _end_process(wait: _Wait) -> None:
    """End this process, whatever its main thread does. For a worker, the process that trains explains the end."""
    is_worker = get_worker_info() is not None
    try:
        write_failure(wait.record, VideoFailure(wait.path, None))
        if not is_worker:
            print(too_slow(wait.path), file=sys.stderr, flush=True)
    finally:
        # sys.exit would end this thread alone, and the decoder in the main thread may never return.
        os._exit(EXIT_HUNG if is_worker else 1)
