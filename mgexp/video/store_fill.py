"""Fill a clip store with copies of videos, in many processes.

A copy appears whole or not at all, and its line in the manifest appears after it. If the work is killed at any
moment, the store still holds what its manifest says, and the next start continues with the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from mgexp.errors import InputError, raise_problems
from mgexp.run.files import (
    NO_SPACE,
    append_jsonl,
    atomic_write_text,
    is_folder,
    is_there,
    json_line,
    lock_file,
    read_json,
    write_json,
)
from mgexp.run.log import progress_bar
from mgexp.video.processes import map_in_processes, no_result
from mgexp.video.reader import VideoError
from mgexp.video.store import (
    GONE,
    Copy,
    Stamp,
    StoreDir,
    StoredVideo,
    copy_name,
    distinct_levels,
    stamp_of,
)
from mgexp.video.store_encode import CODEC, MAX_QUANTIZER, encode_video

VERSION = 1
"""The version of the manifest's format."""
LIMIT_SECONDS = 3600.0
"""Seconds for one video, since a decoder may hang. Assumption: the copies of a film take no longer."""
NO_STAMP = Stamp(0, 0)
"""Of a video that is gone, or that cannot be read."""


@dataclass(frozen=True)
class Order:
    """The content that a store should have: copies at ``levels`` (short sides in pixels) of videos below ``root``.

    ``quantizer``: the quality of MPEG-2, from 1 (best) to MAX_QUANTIZER.
    Raises InputError for levels or a quantizer that MPEG-2 cannot have.
    """

    root: Path
    levels: tuple[int, ...]
    quantizer: int

    def __post_init__(self) -> None:
        problems = [
            f"--short-sides {level}: give even numbers of pixels, 16 or more"
            for level in self.levels
            if level < 16 or level % 2
        ]
        if not self.levels:
            problems.append("no short side is given: add --short-sides, such as 320 160")
        if not 1 <= self.quantizer <= MAX_QUANTIZER:
            problems.append(
                f"--quantizer {self.quantizer}: MPEG-2 takes 1 (best) to {MAX_QUANTIZER}"
            )
        raise_problems(problems)


Lacking = tuple[str, tuple[int, ...]]
"""The path of a video, and the levels at which it lacks a copy."""


@dataclass(frozen=True)
class Filled:
    """How many videos were copied and kept, and (video, reason) of each that lacks a copy."""

    num_copied: int
    num_kept: int
    failures: tuple[tuple[str, str], ...]


def fill_store(
    store: StoreDir,
    order: Order,
    paths: Sequence[str],
    num_processes: int,
    progress: bool,
    limit_seconds: float = 0.0,
) -> Filled:
    """Copy the videos at ``paths`` that are not in the store, or that have changed since they were copied.

    Paths are relative to the root. Videos that failed are tried again. A video that takes longer than
    ``limit_seconds`` fails; 0 is no limit, and one process is then this process. Raises InputError if the folder
    holds something else, another process fills it, or a path is outside the root. Raises OSError if the disk is
    full or a file cannot be looked at, and BrokenProcessPool if no process can start. The next call then goes on
    with the rest.
    """
    _check_paths(order, paths)
    settings = {"version": VERSION, "codec": CODEC, "quantizer": order.quantizer}
    _check_settings(store, settings)
    store.root.mkdir(parents=True, exist_ok=True)
    busy = f"another process fills {store.root}: wait until it ends, or stop it"
    with lock_file(store.lock, busy):
        # The settings come before the first copy: a later start refuses a folder of copies without settings.
        if not store.settings_json.exists():
            write_json(store.settings_json, settings)
        # A killed process may have left half-written files and half a line.
        for leftover in store.root.rglob(".*.tmp"):
            # A folder of copies may have such a name too.
            if leftover.is_file():
                leftover.unlink()
        known = store.read()
        _rewrite(store, known)
        size_bytes = store.manifest_jsonl.stat().st_size
        wanted = ((path, _levels_to_make(store, order, path, known)) for path in paths)
        lacking = [(path, levels) for path, levels in wanted if levels]
        how = (num_processes, progress, limit_seconds)
        failures = _copy_all(store, order, lacking, known, *how)
        # Lines that later ones replaced would only make the store slower to open.
        if store.manifest_jsonl.stat().st_size != size_bytes:
            _rewrite(store, known)
    return Filled(len(lacking) - len(failures), len(paths) - len(lacking), tuple(failures))


def _rewrite(store: StoreDir, known: dict[str, StoredVideo]) -> None:
    lines = [json_line(asdict(video)) for video in known.values()]
    atomic_write_text(store.manifest_jsonl, "".join(lines))


def _copy_all(
    store: StoreDir,
    order: Order,
    lacking: Sequence[Lacking],
    known: dict[str, StoredVideo],
    num_processes: int,
    progress: bool,
    limit_seconds: float,
) -> list[tuple[str, str]]:

    def failed(item: Lacking, error: Exception) -> StoredVideo:
        # A full disk is no fault of the video: nothing more can be copied, so the work stops here.
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            raise error
        return _without_copies(item[0], NO_STAMP, no_result(error, limit_seconds))

    encoded = map_in_processes(
        partial(copy_video, store, order),
        lacking,
        num_processes,
        limit_seconds=limit_seconds or None,
        failure=failed if limit_seconds or num_processes > 1 else None,
    )
    bar = progress_bar(len(lacking), " videos", is_shown=progress)
    failures = []
    # ``closing`` ends the processes, also after an error.
    with bar, closing(encoded) as videos:
        for video in videos:
            before = known.get(video.path)
            stay = ""
            if before is not None and before.levels and video.stamp in (before.stamp, NO_STAMP):
                # Other copies that were made from the same file stay, also if the video fails now.
                stay = "; its other copies stay"
            if video.failure:
                failures.append((video.path, video.failure + stay))
            if before is not None and stay:
                levels = {**before.levels, **video.levels}
                video = replace(before if video.failure else video, levels=levels)  # noqa: PLW2901
            # The line comes before old copies go. A kill in between leaves copies without a line, which take
            # room, but never a line without copies.
            append_jsonl(store.manifest_jsonl, asdict(video))
            # The file changed, so copies that nothing replaced are of an earlier content.
            for level in before.levels.keys() - video.levels.keys() if before is not None else ():
                store.copy(level, video.path).unlink(missing_ok=True)
            known[video.path] = video
            bar.update()
    return failures


def copy_video(store: StoreDir, order: Order, lacking: Lacking) -> StoredVideo:
    """Encode one video. If the video fails, the result says why. Raises OSError if the disk is full."""
    path, levels = lacking
    source = order.root / path
    stamp = NO_STAMP
    try:
        stamp = stamp_of(str(source))
        # Opening a pipe would wait for ever.
        if not source.is_file() and not source.is_dir():
            raise VideoError(path, "is not a file")
        return encode_video(source, path, stamp, store, levels, order.quantizer)
    except VideoError as error:
        reason = error.reason
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        reason = f"cannot be read or copied: {error.strerror or error}"
    return _without_copies(path, stamp, reason)


def _without_copies(path: str, stamp: Stamp, reason: str) -> StoredVideo:
    return StoredVideo(path, stamp, 0, 0.0, 0, 0, {}, reason)


def _check_paths(order: Order, paths: Sequence[str]) -> None:
    # A copy lies in the store at the path of its video, so ".." would lead its copy out of the store.
    outside = [path for path in paths if Path(path).is_absolute() or ".." in Path(path).parts]
    problems = [f"{path} is outside the root folder {order.root}" for path in outside]
    names: dict[str, str] = {}
    for path in paths:
        # The copies of a.avi and of a.avi.mp4 would both be called a.avi.mp4.
        other = names.setdefault(copy_name(path), path)
        if other != path:
            problems.append(f"{path} and {other} would have the same copy")
    raise_problems(problems)


def _check_settings(store: StoreDir, settings: dict[str, object]) -> None:
    """Raise InputError unless the folder is new, or is a store whose copies are encoded in the same way."""
    if is_there(store.root) and not is_folder(store.root):
        raise InputError([f"{store.root} is not a folder"])
    if not store.settings_json.exists():
        # A start that was killed early may have left its lock, or a temporary file, and nothing else.
        names = [path.name for path in store.root.iterdir()] if store.root.exists() else []
        if any(name != store.lock.name and not name.endswith(".tmp") for name in names):
            raise InputError([f"{store.root} holds files but no {store.settings_json.name}"])
        return
    found_settings = read_json(store.settings_json)
    differences = [
        f"{name} {found_settings.get(name)} there, {value} now"
        for name, value in settings.items()
        if found_settings.get(name) != value
    ]
    if differences:
        raise InputError([f"{store.root} holds other copies ({'; '.join(differences)})"])


def _levels_to_make(
    store: StoreDir, order: Order, path: str, known: dict[str, StoredVideo]
) -> tuple[int, ...]:
    """Return the levels without a copy of the video as it is now, and forget its lost copies. Raises OSError."""
    video = known.get(path)
    if video is None or not video.levels:
        return order.levels
    whole = {
        level: copy for level, copy in video.levels.items() if _is_whole(store, path, level, copy)
    }
    if len(whole) < len(video.levels):
        known[path] = replace(video, levels=whole)
        append_jsonl(store.manifest_jsonl, asdict(known[path]))
    # The copies of a video outlive it, so it may be gone.
    with suppress(*GONE):
        if stamp_of(str(order.root / path)) != video.stamp:
            return order.levels
    needed = distinct_levels(video.height, video.width, order.levels)
    return tuple(level for level in needed if level not in whole)


def _is_whole(store: StoreDir, path: str, level: int, copy: Copy) -> bool:
    try:
        return store.copy(level, path).stat().st_size == copy.size_bytes
    except OSError:
        return False
