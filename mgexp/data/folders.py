"""A folder for each class, with its videos in it; no list file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mgexp.data.files import ProblemLog
from mgexp.data.records import Listed, VideoList, VideoRecord, video_list
from mgexp.run.files import is_folder, is_there

ENDINGS = frozenset(
    (
        *(".3gp", ".avi", ".flv", ".m4v", ".mkv", ".mov", ".mp4"),
        *(".mpeg", ".mpg", ".mts", ".ogv", ".ts", ".webm", ".wmv"),
    )
)
"""What videos are called that FFmpeg reads. Assumption: no data set of videos has other ones."""

REMEDIES = {
    "file beside the folders of the classes": "move it into the folder of its class",
    "folder of no class": "correct it, or DATA.CLASSES; without that key the classes are the folders of "
    "DATA.TRAIN_LIST",
    "folder without a video": "put videos into it, or remove it",
    "folder in the folder of a class": "put the videos of a class into one folder",
    "file that is no video": f"remove it; videos end in {' '.join(sorted(ENDINGS))}",
}


def read_folders(folder: Path, classes: Mapping[str, int]) -> VideoList:
    """The videos of ``folder/CLASS/NAME``, in the order of their paths; an empty file is a missing video.

    ``classes``: name of a folder → number. Hidden files (.DS_Store) are left out; any other file that is
    no video by its ending (in capitals or not) is a problem, as is a folder of no class or without a
    video. Raises nothing: problems and missing videos are returned.
    """
    problems = folder_problems(folder)
    if problems:
        return VideoList((), (), problems)
    log = ProblemLog(REMEDIES)
    listed = list(_parse(folder, classes, log))
    return video_list(listed, log.messages(), f"folder {folder} holds no video: add some")


def class_folders(folder: Path) -> tuple[str, ...]:
    """The names of the folders in ``folder``, but hidden ones; none where it is no folder."""
    if folder_problems(folder):
        return ()
    return tuple(path.name for path in _visible(folder) if path.is_dir())


def folder_problems(folder: Path) -> tuple[str, ...]:
    """A folder of videos that is none."""
    if is_folder(folder) and os.access(folder, os.R_OK | os.X_OK):
        return ()
    what = "is not a folder that can be read" if is_there(folder) else "does not exist"
    return (f"folder of videos {folder.absolute()} {what}: give one with a folder for each class",)


def common_root(folders: Sequence[Path]) -> Path:
    """The folder that holds all ``folders`` of videos, such as data for data/train and data/val; absolute.

    The paths in a clip store and in a quarantine are relative to it. Of no folder it is the working folder.
    """
    parents = [_whole(folder).parent for folder in folders]
    return Path(os.path.commonpath(parents)) if parents else Path.cwd()


def _whole(folder: Path) -> Path:
    """Absolute, without ``..``, as every other path of a video."""
    return Path(os.path.normpath(folder.absolute()))


def _parse(folder: Path, classes: Mapping[str, int], log: ProblemLog) -> Iterator[Listed]:
    """The videos; what is no video goes to ``log``."""
    for path in _visible(_whole(folder)):
        if not path.is_dir():
            log.add("file beside the folders of the classes", str(folder), path.name)
        elif path.name not in classes:
            log.add("folder of no class", str(folder), path.name)
        else:
            yield from _videos(path, classes[path.name], log)


def _videos(folder: Path, label: int, log: ProblemLog) -> Iterator[Listed]:
    num_videos = 0
    for path in _visible(folder):
        if path.is_dir():
            log.add("folder in the folder of a class", str(folder), path.name)
        elif path.suffix.lower() not in ENDINGS:
            log.add("file that is no video", str(folder), path.name)
        else:
            num_videos += 1
            yield Listed(VideoRecord(str(path), label))
    if not num_videos:
        log.add("folder without a video", str(folder.parent), folder.name)


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
