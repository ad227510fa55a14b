"""Check many video files in other processes, since a damaged file can hang or crash its decoder.

A line for each video is kept in a folder, so that a second call continues where the first one stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from mgexp.errors import InputError
from mgexp.run.files import append_jsonl, atomic_write_text, cut_jsonl, read_jsonl, understanding
from mgexp.run.folder import CheckDir
from mgexp.run.log import progress_bar
from mgexp.text import counted, escaped
from mgexp.video.check import KINDS, USABLE_KINDS, VideoCheck, check_video, state_of
from mgexp.video.paths import Root
from mgexp.video.processes import CANNOT_START, map_in_processes, no_result

PASSING_KINDS = frozenset({"missing", "open_fails", "no_sequence", "crashed"})
"""Kinds whose reason may be the system and not the video, such as rights, a file server, or full memory."""


def check_videos(
    paths: Sequence[str],
    *,
    quick: bool,
    num_processes: int,
    limit_seconds: float,
    check: Callable[..., VideoCheck] = check_video,
) -> Generator[VideoCheck, None, None]:
    """Check the videos in ``num_processes`` processes, and yield the results in the order of the paths.

    Raises BrokenProcessPool if a process ends before it gets a video.
    """

    def failed(path: str, error: Exception) -> VideoCheck:
        hung = isinstance(error, FutureTimeoutError)
        check = VideoCheck(path, "hung" if hung else "crashed", no_result(error, limit_seconds))
        size, changed = state_of(path)
        seconds = limit_seconds if hung else 0.0
        return replace(check, seconds=seconds, bytes=size, mtime_ns=changed)

    # Checking a data set takes hours. The niceness lets the other programs on the machine go first.
    return map_in_processes(
        partial(check, quick=quick),
        paths,
        num_processes,
        limit_seconds=limit_seconds,
        failure=failed,
        niceness=10,
    )


NUM_EXAMPLES = 3
"""Number of videos of each kind that the table names. ``CheckDir.videos_jsonl`` names all of them."""


@dataclass(frozen=True)
class CheckSummary:
    """The checks of all videos of a call. An earlier call made ``num_known`` of them."""

    checks: Sequence[VideoCheck]
    num_known: int

    @cached_property
    def counts(self) -> dict[str, int]:
        counts = Counter(check.kind for check in self.checks)
        return {kind: counts[kind] for kind in KINDS if counts[kind]}

    @property
    def num_unusable(self) -> int:
        return sum(num for kind, num in self.counts.items() if kind not in USABLE_KINDS)

    def as_json(self) -> dict[str, Any]:
        return {
            "num_videos": len(self.checks),
            "num_unusable": self.num_unusable,
            "num_known": self.num_known,
            "kinds": self.counts,
            "video_seconds": sum(check.duration_seconds or 0.0 for check in self.checks),
        }

    def as_text(self) -> str:
        """Return a line for each kind, and below it the first videos that are not ok."""
        lines = [f"{'kind':<26}{'videos':>9}{'share':>9}  meaning"]
        for kind, num in self.counts.items():
            lines.append(f"{kind:<26}{num:>9,}{num / len(self.checks):>9.2%}  {KINDS[kind]}")
            checks = [check for check in self.checks if check.kind == kind != "ok"]
            for check in checks[:NUM_EXAMPLES]:
                lines.append(f"    {check.path}: {escaped(check.reason)}")
            if len(checks) > NUM_EXAMPLES:
                lines.append(f"    ... and {num - NUM_EXAMPLES:,} more")
        lines.append(
            f"{counted(len(self.checks), 'video')}, {self.num_unusable:,} unusable; "
            f"{counted(self.num_known, 'was known', 'were known')} from an earlier call"
        )
        return "\n".join(lines)


def known_checks(
    folder: CheckDir, paths: Sequence[str], quick: bool, limit_seconds: float
) -> dict[str, VideoCheck]:
    """Return the earlier checks of ``paths`` that still hold, and delete the lines that do not.

    A full check (not ``quick``) accepts no line of a quick one. A video that hung under a limit shorter than
    ``limit_seconds`` is checked again.
    """

    def holds(line: Mapping[str, Any]) -> bool:
        if line["kind"] in PASSING_KINDS or (line["quick"] and not quick):
            return False
        if line["kind"] == "hung" and line["seconds"] < limit_seconds:
            return False
        return (line["bytes"], line["mtime_ns"]) == state_of(line["path"])

    asked = set(paths)
    names = [field.name for field in fields(VideoCheck)]
    with understanding(folder.videos_jsonl):
        cut_jsonl(folder.videos_jsonl, lambda line: line["path"] not in asked or holds(line))
        return {
            # A line of an earlier version has no mean frame.
            line["path"]: VideoCheck(**{name: line[name] for name in names if name in line})
            for line in read_jsonl(folder.videos_jsonl)
            if line["path"] in asked
        }


def add_check(folder: CheckDir, check: VideoCheck, quick: bool) -> None:
    """Append the line of ``check``."""
    append_jsonl(folder.videos_jsonl, {**asdict(check), "quick": quick})


def write_quarantine(folder: CheckDir, checks: Iterable[VideoCheck], root: Path) -> None:
    """Write the names of the videos that training cannot use, sorted, a line each; see ``Root.name``."""
    base = Root(root)
    lines = sorted(base.name(check.path) for check in checks if not check.is_usable)
    atomic_write_text(folder.quarantine_txt, "".join(f"{line}\n" for line in lines))


def check_in_folder(
    folder: CheckDir,
    paths: Sequence[str],
    root: Path,
    quick: bool,
    num_processes: int,
    limit_seconds: float,
) -> CheckSummary:
    """Check the videos at ``paths`` that no earlier call has checked. Write all results into ``folder``.

    Raises InputError if another process works in the folder, or if no process can start.
    """
    with folder.locked():
        checks = known_checks(folder, paths, quick, limit_seconds)
        num_known = len(checks)
        checking = check_videos(
            [path for path in paths if path not in checks],
            quick=quick,
            num_processes=num_processes,
            limit_seconds=limit_seconds,
        )
        # `closing` ends the checking processes, also after Ctrl-C.
        bar = progress_bar(len(paths), " videos", initial=num_known)
        try:
            with bar, closing(checking):
                for check in checking:
                    add_check(folder, check, quick)
                    checks[check.path] = check
                    bar.update()
        except BrokenProcessPool as error:
            raise InputError([f"{folder.root}: {CANNOT_START}"]) from error
        ordered = [checks[path] for path in paths]
        write_quarantine(folder, ordered, root)
    return CheckSummary(ordered, num_known)
