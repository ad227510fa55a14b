"""Find one's own videos in folders by class, or in lists, and split them into training and validation.

A group is a set of videos that must not be in both lists, such as the clips of one recording or of one person.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from mgexp.data.classes import read_text
from mgexp.data.entries import ENDINGS, MAX_LISTED
from mgexp.data.formats import unreadable, visible_in
from mgexp.errors import listed
from mgexp.run.files import sha256_of
from mgexp.text import counted, is_plain, shown
from mgexp.video.frame_folder import is_image
from mgexp.video.paths import Root

PARTS = r"^(.+?)[_-](?:c|clip|part|seg|segment|scene|shot|take)[_-]?[0-9]+$"
"""Names that are parts of one recording, such as v_Archery_g01_c03 of UCF-101 or street_clip2."""
LEAST_GROUPS = 4
"""Groups that each class needs if names tell them. Assumption: fewer cannot be split by a quarter."""
TRAIN_FOLDERS, VAL_FOLDERS = ("train", "training"), ("val", "valid", "validation")
TEST_FOLDERS = ("test", "testing")


@dataclass(frozen=True)
class OwnVideo:
    """A video by its absolute path, the name of its class, and its group; "" for a video that is a group itself.

    ``is_val`` tells for which list a folder or a list of the user has it; None where the split is ours.
    """

    path: str
    class_name: str
    group: str = ""
    is_val: bool | None = None


@dataclass(frozen=True)
class Found:
    """The videos of a user, what is wrong, and what was left out on the way."""

    videos: tuple[OwnVideo, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def find_videos(root: Path) -> Found:
    """Find the videos in ``root``: a folder for each class, or folders train and val with a folder for each class.

    A folder in the folder of a class is a group, with all folders in it. A folder of images is one video.
    """
    try:
        return _found_in(Path(os.path.normpath(root.absolute())))
    except OSError as error:
        return Found(problems=(unreadable(error),))


def _found_in(root: Path) -> Found:
    inside = visible_in(root)
    folders = [path for path in inside if path.is_dir() and _holds_videos(path)]
    train, val, test = (
        [path for path in folders if path.name.lower() in names]
        for names in (TRAIN_FOLDERS, VAL_FOLDERS, TEST_FOLDERS)
    )
    # Some data sets call their validation videos test.
    chosen = val or test
    if not train or not chosen:
        return _in_classes(root, None)
    parts = {train[0], chosen[0], *(test if val else ())}
    others = [path for path in inside if path not in parts]
    if more := [str(path) for path in others if path in folders or _is_video(path)]:
        names = f"{train[0].name} and {chosen[0].name}"
        problem = f"{root} has the folders {names}, and beside them {listed(more)}"
        return Found(problems=(f"{problem}: move that away, or give --list",))
    notes = [f"{path}: left out, since {val[0].name} is there" for path in test if val]
    notes += [f"{path}: left out, since no video is in it" for path in others]
    found = [_in_classes(train[0], False), _in_classes(chosen[0], True), Found(notes=tuple(notes))]
    fields = ("videos", "problems", "notes")
    return Found(*(tuple(one for part in found for one in getattr(part, f)) for f in fields))


def _holds_videos(folder: Path) -> bool:
    return any(True for _ in _videos_below(folder, "", {os.path.realpath(folder)}, []))


def _in_classes(folder: Path, is_val: bool | None) -> Found:
    videos: list[OwnVideo] = []
    left_out: list[str] = []
    problems, notes = [], []
    for path in visible_in(folder):
        if not path.is_dir():
            left_out.append(str(path))
            continue
        found = [*_videos_below(path, "", {os.path.realpath(path)}, left_out)]
        videos += [OwnVideo(str(one), path.name, group, is_val) for one, group in found]
        if not found:
            notes.append(f"{path}: left out, since no video is in it")
    loose = [path for path in left_out if Path(path).parent == folder and _is_video(Path(path))]
    if loose:
        problems.append(
            f"{counted(len(loose), 'video lies', 'videos lie')} outside the folders of the classes, such as "
            f"{listed(loose, 1)}: move them "
            "into the folder of their class, or give --list with lines of 'path label'"
        )
    others = [path for path in left_out if path not in loose]
    if others:
        what = counted(len(others), "file is no video", "files are no videos")
        notes.append(f"{what}, such as {listed(others, 1)}: left out")
    if not videos and not problems:
        problems.append(
            f"{folder} holds no video in a folder of a class: make a folder for each class and put its "
            f"videos into it (videos end in {' '.join(ENDINGS)}), or give --list"
        )
    return Found(tuple(videos), tuple(problems), tuple(notes))


def _is_video(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


def _is_folder_of_images(folder: Path) -> bool:
    inside = visible_in(folder)
    others = [one for one in inside if not is_image(one.name)]
    # A picture beside videos, or beside folders that may hold videos, is no frame.
    return len(others) < len(inside) and not any(_is_video(one) or one.is_dir() for one in others)


def _videos_below(
    folder: Path, group: str, seen: set[str], left_out: list[str]
) -> Iterator[tuple[Path, str]]:
    """Yield (video, group) of all videos below a folder. ``seen`` has its real folders: links may go round."""
    for path in visible_in(folder):
        if path.is_dir():
            real = os.path.realpath(path)
            if _is_folder_of_images(path):
                yield path, group
            elif real not in seen:
                yield from _videos_below(path, group or path.name, {*seen, real}, left_out)
        elif _is_video(path):
            yield path, group
        else:
            left_out.append(str(path))


def read_lists(
    lists: Sequence[Path], root: Path, is_val: bool | None, separator: str | None, with_group: bool
) -> Found:
    """Read lists with a line ``path label`` for each video, or ``path label group``. Labels are names or numbers.

    Paths are relative to ``root``, or absolute below it. ``separator`` None: spaces and tabs.
    """
    videos: list[OwnVideo] = []
    problems: list[str] = []
    inside = Root(root)
    form = "path label group" if with_group else "path label"
    for path in lists:
        text, unreadable = read_text(path)
        problems += unreadable
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.strip():
                continue
            name, *rest = map(str.strip, line.strip().rsplit(separator, 2 if with_group else 1))
            video = inside.path(name)
            if not name or not rest or not all(rest) or len(rest) != 1 + with_group:
                problems.append(f"{path}:{number}: {shown(line)} is not '{form}'")
            elif video is None:
                problems.append(
                    f"{path}:{number}: {shown(name)} lies outside {root.absolute()}: give the folder "
                    "that the paths are relative to as VIDEOS"
                )
            else:
                videos.append(OwnVideo(video, rest[0], rest[1] if with_group else "", is_val))
    if lists and not videos and not problems:
        problems.append(f"{listed([*map(str, lists)])}: no line names a video")
    if len(problems) > MAX_LISTED:
        problems[MAX_LISTED:] = [f"... and {len(problems) - MAX_LISTED} more"]
    return Found(tuple(videos), tuple(problems))


def with_groups(videos: Sequence[OwnVideo], regex: str | None) -> tuple[list[OwnVideo], list[str]]:
    """Return the videos with their groups, and lines that say where the groups come from.

    ``regex`` is searched in the name of each file without its ending; its group (…), or else the whole match, is
    the group of the video. None: groups that exist stay, and PARTS names others. Copies of a video are one group.
    Raises ValueError if ``regex`` is no regular expression, or matches no name.
    """
    given = sum(bool(one.group) for one in videos)
    has = counted(given, "video has", "videos have")
    lines = [f"{has} a group from a folder or a list"] if given else []
    named = [*videos]
    if regex:
        try:
            pattern = re.compile(regex)
        except re.error as error:
            raise ValueError(f"{regex!r} is no regular expression: {error}") from error
        found = [_in_name(pattern, one) for one in videos]
        if not any(found):
            example = Path(videos[0].path).stem
            raise ValueError(
                f"{regex!r} finds no group in the names of videos, such as {example!r}"
            )
        named = [replace(one, group=g or one.group) for one, g in zip(videos, found, strict=True)]
        num = sum(map(bool, found))
        lines = [f"the names of {num} of {len(videos)} videos have a group, by --group-regex"]
    elif regex is None:
        named, told = _with_parts(videos)
        lines += told
    same = _same_bytes(named)
    if same:
        what = counted(len(same), "video is a copy of another", "videos are copies of others")
        lines.append(f"{what}, such as {listed([*same], 1)}; copies stay together")
    return _merged(named, same), lines


def _in_name(pattern: re.Pattern[str], video: OwnVideo) -> str:
    """Return the group in the name of a video; "" if the pattern does not match."""
    match = pattern.search(Path(video.path).stem)
    return (match[1 if pattern.groups else 0] or "") if match else ""


def _with_parts(videos: Sequence[OwnVideo]) -> tuple[list[OwnVideo], list[str]]:
    """Give a group to the videos without one whose names look like parts of one recording, and say so."""
    pattern = re.compile(PARTS)
    named = [replace(one, group=one.group or _in_name(pattern, one)) for one in videos]
    num = sum(one != other for one, other in zip(named, videos, strict=True))
    if not num:
        return named, []
    groups = {(one.class_name, one.group or one.path) for one in named}
    fewest = min(Counter(kind for kind, _ in groups).values())
    what = (
        f"{counted(num, 'name looks', 'names look')} like parts of one recording (…_c01, …_clip2)"
    )
    # Where all names of a class begin alike, the number at the end only counts the videos.
    if fewest < LEAST_GROUPS:
        why = f"but a class would have only {counted(fewest, 'group')}, so each video is by itself"
        return [*videos], [f"{what}, {why}: give --group-regex if they belong together"]
    return named, [f"{what}, so they stay together; --group-regex '' ends that"]


def _same_bytes(videos: Sequence[OwnVideo]) -> dict[str, str]:
    """Map each copy to the first video with the same bytes. Only files of the same size are read."""
    by_size: dict[int, list[str]] = defaultdict(list)
    for one in videos:
        with suppress(OSError):
            if (file := Path(one.path)).is_file():
                by_size[file.stat().st_size].append(one.path)
    copies = {}
    # Empty files are no copies: the check calls them unusable.
    by_size.pop(0, None)
    for paths in by_size.values():
        first: dict[str, str] = {}
        for path in paths if len(paths) > 1 else ():
            # The check tells why a file cannot be read.
            with suppress(OSError):
                original = first.setdefault(sha256_of(Path(path)), path)
                if original != path:
                    copies[path] = original
    return copies


def _merged(videos: Sequence[OwnVideo], same: dict[str, str]) -> list[OwnVideo]:
    """Give every video a group. Copies, and all videos of their groups, are one group."""
    own = {one.path: one.group or one.path for one in videos}
    joined = {group: group for group in own.values()}

    def last(group: str) -> str:
        while joined[group] != group:
            group = joined[group]
        return group

    for copy, original in same.items():
        joined[last(own[copy])] = last(own[original])
    return [replace(one, group=last(own[one.path])) for one in videos]


def split_videos(
    videos: Sequence[OwnVideo], val_share: float, seed: int
) -> tuple[list[OwnVideo], list[OwnVideo]]:
    """Split videos with groups into training and validation, each class by ``val_share``, whole groups only.

    Raises ValueError with the classes that cannot be in both lists.
    """
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for one in videos:
        groups[one.group][one.class_name] += 1
    total = Counter(one.class_name for one in videos)
    names = sorted(groups)
    random.Random(seed).shuffle(names)
    # Large groups first: the small ones can then fill up what is left of the share.
    names.sort(key=lambda name: -groups[name].total())
    left, chosen = Counter({name: val_share * num for name, num in total.items()}), set()
    num_val: Counter[str] = Counter()

    def fits(name: str) -> bool:
        """Tell whether each class keeps a training video if validation takes this group."""
        return all(num_val[kind] + num < total[kind] for kind, num in groups[name].items())

    def take(name: str) -> None:
        chosen.add(name)
        num_val.update(groups[name])
        left.subtract(groups[name])

    for name in names:
        # A group is taken if that brings the classes nearer to their shares: Σ (left − n)² < Σ left².
        nearer = sum(num * (num - 2 * left[kind]) for kind, num in groups[name].items()) < 0
        if nearer and fits(name):
            take(name)
    for kind in sorted(total):
        if num_val[kind]:
            continue
        if fitting := [name for name in names if groups[name][kind] and fits(name)]:
            take(min(fitting, key=lambda name: groups[name].total()))
    bad = [kind for kind in sorted(total) if not 0 < num_val[kind] < total[kind]]
    if bad:
        raise ValueError(
            f"class {listed(bad)}: its usable videos make no two lists: it needs two, in two groups; "
            "add some, make groups smaller, or remove the class"
        )
    return (
        [one for one in videos if one.group not in chosen],
        [one for one in videos if one.group in chosen],
    )


def class_order(names: Sequence[str]) -> list[str]:
    """Return the different names of the classes in the order of their numbers. Numbers are sorted by value."""
    unique = sorted(set(names))
    are_numbers = all(re.fullmatch(r"[0-9]{1,9}", name) for name in unique)
    return sorted(unique, key=int) if are_numbers else unique


def name_problems(videos: Sequence[OwnVideo]) -> list[str]:
    """Report names that lists could not hold. There, a name is one line without spaces around it."""
    bad = [
        one.path
        for one in videos
        if any(not is_plain(name) or name != name.strip() for name in (one.path, one.class_name))
    ]
    what = "hold control characters, or begin or end with a space"
    return [f"{len(bad)} names {what}, such as {shown(bad[0])}: rename them"] if bad else []
