"""Entries of a list of videos (a line, a CSV row, a JSON object), and the files of the videos that they name.

A reader in ``formats.py`` parses each entry: it gives the video, or says what is wrong with the entry.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from mgexp.data.records import Record, VideoList
from mgexp.text import counted, is_plain, shown
from mgexp.video.paths import are_usable

ENDINGS = (
    *(".3gp", ".avi", ".flv", ".m4v", ".mkv", ".mov", ".mp4"),
    *(".mpeg", ".mpg", ".mts", ".ogv", ".ts", ".webm", ".wmv"),
)
"""Endings of video files that FFmpeg reads. Assumption: no data set of videos has other ones."""

MAX_LISTED = 10
"""Messages name this many problems of one kind, and count the others."""


@dataclass(frozen=True)
class Listed:
    """A video of a list at its usual place, and other places (absolute paths) where its file may be."""

    record: Record
    elsewhere: tuple[str, ...] = ()


class Bad(NamedTuple):
    """A fault of an entry: what is wrong, the value that is wrong, and what the user can do about it."""

    what: str
    value: object
    remedy: str


Entry = TypeVar("Entry")
Parse = Callable[[Entry], Iterator[Listed | Bad]]
"""Turns an entry of a list into its video, or into all faults of the entry."""
BadPlaces = list[tuple[str, Bad]]
"""Bad entries, each with its place: file and line."""


def parse_entries(
    entries: Iterable[tuple[str, Entry | Bad]], parse: Parse[Entry], may_repeat: bool = False
) -> tuple[list[Listed], BadPlaces]:
    """Parse entries, each with its place. A video that is listed twice is a fault, unless ``may_repeat``."""
    videos: list[Listed] = []
    bad: BadPlaces = []
    seen: set[str] = set()
    for place, entry in entries:
        for found in [entry] if isinstance(entry, Bad) else parse(entry):
            if isinstance(found, Bad):
                bad.append((place, found))
            elif found.record.path in seen and not may_repeat:
                remedy = "keep one of its entries"
                bad.append((place, Bad("video listed twice", found.record.path, remedy)))
            else:
                seen.add(found.record.path)
                videos.append(found)
    return videos, bad


def bad_messages(bad: BadPlaces) -> Iterator[str]:
    """Yield messages by kind of problem: the first ones of each kind, and the number of the others."""
    kinds: dict[str, BadPlaces] = defaultdict(list)
    for place, one in bad:
        kinds[one.what].append((place, one))
    for what, found in kinds.items():
        for place, one in found[:MAX_LISTED]:
            yield f"{what}, {place}: {shown(one.value)}: {one.remedy}"
        if len(found) > MAX_LISTED:
            yield f"{what}: ... and {len(found) - MAX_LISTED} more"


def existing_videos(videos: Sequence[Listed], problems: Iterable[str], if_empty: str) -> VideoList:
    """Find the file of each video: the first of its places with a file that is not empty.

    In place of the file there may be a folder of images. Its name may lack the ending of the file.
    A video without any of these is missing, and is named by its usual place. ``if_empty`` is the
    problem to report for a list without videos.
    """
    told = list(problems)
    unfit = [one.record.path for one in videos if not is_plain(one.record.path)]
    # Such names would break the lines of logs and of a quarantine.
    if unfit:
        told.append(
            f"{counted(len(unfit), 'video has a name', 'videos have names')} with control characters, or bytes "
            f"that are no UTF-8, such as {shown(unfit[0])}: rename them"
        )
    if not told and not videos:
        told.append(if_empty)
    places = []
    for one in videos:
        files = (one.record.path, *one.elsewhere)
        stems = (os.path.splitext(path) for path in files)  # noqa: PTH122 (240,000 videos)
        # With a slash at its end, a path finds folders only.
        folders = (f"{stem}/" for stem, ending in stems if ending.lower() in ENDINGS)
        places.append((*files, *dict.fromkeys(folders)))
    found: dict[int, str] = {}
    # Turn 0 looks at the usual place of all videos at once. Turn 1 looks at the second place of the
    # videos that were not found, and so on. The look-ups of a turn run in parallel, and most lists
    # need a single turn.
    for turn in range(max(map(len, places), default=0)):
        left = [i for i in range(len(places)) if i not in found and turn < len(places[i])]
        usable = are_usable([places[i][turn] for i in left])
        found |= {
            i: places[i][turn].rstrip("/") for i, good in zip(left, usable, strict=True) if good
        }
    everything = [
        replace(one.record, path=found[i]) if i in found else one.record
        for i, one in enumerate(videos)
    ]
    records = tuple(one for i, one in enumerate(everything) if i in found)
    lost = [i for i in range(len(everything)) if i not in found]
    missing = tuple(everything[i].path for i in lost)
    elsewhere = {everything[i].path: tuple(place.rstrip("/") for place in places[i]) for i in lost}
    return VideoList(records, missing, tuple(told), tuple(everything), elsewhere)
