"""What checking leaves in a folder: a line for each video, and the quarantine; a second call goes on."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property, partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from mgexp.run.files import append_jsonl, atomic_write_text, cut_jsonl, read_jsonl
from mgexp.run.folder import CheckDir
from mgexp.video.check import KINDS, USABLE_KINDS, VideoCheck, check_video
from mgexp.video.paths import Root

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


NUM_EXAMPLES = 3
"""Videos of each kind that the table names; all are in the file of lines."""


@dataclass(frozen=True)
class CheckSummary:
    """The checks of all videos of a call; ``num_known`` of them were made by an earlier one."""

    checks: Sequence[VideoCheck]
    num_known: int

    @cached_property
    def counts(self) -> dict[str, int]:
        """Videos of each kind that was found, in the order of KINDS."""
        found = Counter(check.kind for check in self.checks)
        return {kind: found[kind] for kind in KINDS if found[kind]}

    @property
    def num_unusable(self) -> int:
        """Videos that training cannot use."""
        return sum(num for kind, num in self.counts.items() if kind not in USABLE_KINDS)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "num_videos": len(self.checks),
            "num_unusable": self.num_unusable,
            "num_known": self.num_known,
            "kinds": self.counts,
            "video_seconds": sum(check.duration_seconds or 0.0 for check in self.checks),
        }

    def as_text(self) -> str:
        """A line for each kind, with its share and meaning; below it, the first videos that are not ok."""
        lines = [f"{'kind':<26}{'videos':>9}{'share':>9}  meaning"]
        for kind, num in self.counts.items():
            lines.append(f"{kind:<26}{num:>9,}{num / len(self.checks):>9.2%}  {KINDS[kind]}")
            lines += self._examples(kind)
        lines.append(
            f"{len(self.checks):,} videos, {self.num_unusable:,} unusable; "
            f"{self.num_known:,} were known from an earlier call"
        )
        return "\n".join(lines)

    def _examples(self, kind: str) -> list[str]:
        found = [check for check in self.checks if check.kind == kind and kind != "ok"]
        lines = [f"    {check.path}: {check.reason}" for check in found[:NUM_EXAMPLES]]
        more = len(found) - NUM_EXAMPLES
        return [*lines, f"    ... and {more:,} more"] if more > 0 else lines


FIELDS = tuple(field.name for field in fields(VideoCheck))


@dataclass(frozen=True)
class CheckLog:
    """Checks made with one setting, in ``folder``; its lock must be held.

    ``quick``: a line of a quick check answers a quick call only, one of a full check both.
    ``limit_seconds``: a video that hung is checked again where this is more than it was given.
    """

    folder: CheckDir
    quick: bool
    limit_seconds: float

    def known(self, paths: Sequence[str]) -> dict[str, VideoCheck]:
        """The checks of ``paths`` that still hold; lines that do not are deleted.

        A line holds while its file has the size and the time of change that it had.
        """
        asked = set(paths)
        cut_jsonl(
            self.folder.videos_jsonl, lambda line: line["path"] not in asked or self._holds(line)
        )
        lines = read_jsonl(self.folder.videos_jsonl)
        return {line["path"]: _check(line) for line in lines if line["path"] in asked}

    def add(self, check: VideoCheck) -> None:
        """Appends a line."""
        line = {**asdict(check), "quick": self.quick, **_state_of(check.path)}
        append_jsonl(self.folder.videos_jsonl, line)

    def write_quarantine(self, checks: Iterable[VideoCheck], root: Path) -> None:
        """Write a line for each video that training cannot use, sorted, as ``Root.name`` names it."""
        base = Root(root)
        lines = sorted(base.name(check.path) for check in checks if not check.is_usable)
        atomic_write_text(self.folder.quarantine_txt, "".join(f"{line}\n" for line in lines))

    def _holds(self, line: Mapping[str, Any]) -> bool:
        if line["kind"] == "crashed":  # perhaps for want of memory: ask again
            return False
        if line["kind"] == "hung" and line["seconds"] < self.limit_seconds:
            return False
        if line["quick"] and not self.quick:
            return False
        return all(line[name] == value for name, value in _state_of(line["path"]).items())


def _state_of(path: str) -> dict[str, int | None]:
    """Size and time of change, None where there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 (paths are text everywhere in lists)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return {"bytes": None, "mtime_ns": None}
    return {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns}


def _check(line: Mapping[str, Any]) -> VideoCheck:
    return VideoCheck(**{name: line[name] for name in FIELDS})
