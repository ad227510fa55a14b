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
from mgexp.errors import listed
from mgexp.text import is_plain, shown
from mgexp.video.paths import first_usable

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
    """A fault of an entry: what is wrong, and the value that is wrong."""

    what: str
    value: object


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
        for parsed in [entry] if isinstance(entry, Bad) else parse(entry):
            if isinstance(parsed, Bad):
                bad.append((place, parsed))
            elif parsed.record.path in seen and not may_repeat:
                bad.append((place, Bad("video listed twice", parsed.record.path)))
            else:
                seen.add(parsed.record.path)
                videos.append(parsed)
    return videos, bad


def bad_messages(bad: BadPlaces) -> Iterator[str]:
    """Yield messages by kind of problem: the first ones of each kind, and the number of the others."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for place, fault in bad:
        kinds[fault.what].append(f"{place}: {fault.what}: {shown(fault.value)}")
    for what, messages in kinds.items():
        yield from messages[:MAX_LISTED]
        if len(messages) > MAX_LISTED:
            yield f"{what}: ... and {len(messages) - MAX_LISTED} more"


def existing_videos(videos: Sequence[Listed], problems: Iterable[str], if_empty: str) -> VideoList:
    """Find the file of each video: the first of its places with a file that is not empty.

    In place of the file there may be a folder of images. Its name may lack the ending of the file.
    A video without any of these is missing, and is named by its usual place. ``if_empty`` is the
    problem to report for a list without videos.
    """
    problems = list(problems)
    unfit = [video.record.path for video in videos if not is_plain(video.record.path)]
    # Such names would break the lines of logs and of a quarantine.
    if unfit:
        names = listed(unfit, 3)
        problems.append(f"names with control characters, or bytes that are no UTF-8: {names}")
    if not problems and not videos:
        problems.append(if_empty)
    places = []
    for video in videos:
        files = (video.record.path, *video.elsewhere)
        stems = (os.path.splitext(path) for path in files)  # noqa: PTH122 (240,000 videos)
        # With a slash at its end, a path finds folders only.
        folders = (f"{stem}/" for stem, ending in stems if ending.lower() in ENDINGS)
        places.append((*files, *dict.fromkeys(folders)))
    found = first_usable(places)
    everything, records, missing = [], [], []
    elsewhere = {}
    for video, of_video, place in zip(videos, places, found, strict=True):
        if place is None:
            everything.append(video.record)
            missing.append(video.record.path)
            elsewhere[video.record.path] = tuple(path.rstrip("/") for path in of_video)
        else:
            everything.append(replace(video.record, path=place.rstrip("/")))
            records.append(everything[-1])
    return VideoList(
        *(tuple(records), tuple(missing), tuple(problems), tuple(everything)), places=elsewhere
    )
