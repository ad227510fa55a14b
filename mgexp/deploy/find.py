"""Find the videos in files and folders that a user names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import av

from mgexp.data.entries import ENDINGS
from mgexp.errors import listed
from mgexp.video.frame_folder import images_of, is_image
from mgexp.video.pyav import AV_ERRORS
from mgexp.video.reader import VideoError

SUFFIXES = frozenset((
    *ENDINGS,
    ".3g2", ".asf", ".divx", ".f4v", ".gif", ".h264", ".h265", ".hevc", ".ivf", ".m1v", ".m2ts", ".m2v", ".mjpeg",
    ".mjpg", ".mpe", ".mxf", ".nut", ".ogm", ".qt", ".rm", ".rmvb", ".vob", ".y4m",
))  # fmt: skip
"""Endings of videos: those of data sets, and more.

A file with one of them counts as a video, so that a damaged one is reported.
"""
NO_VIDEOS = ("image2", "tty", "lrc", "srt", "webvtt", "ass", "mp3", "flac", "wav")
"""Formats that FFmpeg opens too: single pictures, text, and sound with a picture of its cover."""


@dataclass(frozen=True)
class Found:
    """The paths of ``videos``, and of the files of a folder that were ``skipped``, in the order of their names."""

    videos: tuple[str, ...]
    skipped: tuple[str, ...]

    def skipped_text(self) -> str:
        """Say which files are no videos; "" if there are none."""
        if not self.skipped:
            return ""
        num = len(self.skipped)
        what = "1 file that is no video" if num == 1 else f"{num} files that are no videos"
        return f"skipped {what}: {listed(self.skipped, 5)}"


def find_videos(names: Sequence[str]) -> Found:
    """Find the videos that ``names`` stand for. A file is taken as it is, and a folder is searched with all below.

    In a folder, a file is a video if its name ends like one, or if FFmpeg finds moving pictures in it. A folder of
    images without videos is one video, as in training. Hidden files are left out without a word, and links to
    folders are not followed.
    """
    videos: list[str] = []
    skipped: list[str] = []
    for name in names:
        if not os.path.isdir(name):  # noqa: PTH112 (names may be too long or have a NUL character)
            videos.append(name)
            continue
        for folder, folders, files in os.walk(name):
            folders[:] = sorted(one for one in folders if not one.startswith("."))
            shown = sorted(one for one in files if not one.startswith("."))
            if _is_frame_folder(folder, shown):
                videos.append(folder)
                skipped += [os.path.join(folder, one) for one in shown if not is_image(one)]  # noqa: PTH118
                continue
            for file in shown:
                path = os.path.join(folder, file)  # noqa: PTH118 (as text, like the names)
                (videos if is_video(path) else skipped).append(path)
    return Found(tuple(dict.fromkeys(videos)), tuple(dict.fromkeys(skipped)))


def is_video(path: str) -> bool:
    """Tell whether a file is a video, by the end of its name, or else by what FFmpeg finds in it."""
    if _ends_like_a_video(path):
        return True
    # Opening a pipe would wait for ever.
    if not os.path.isfile(path):  # noqa: PTH113
        return False
    try:
        with av.open(path, metadata_errors="replace") as container:
            formats = container.format.name.split(",")
            is_picture = any(one.endswith("_pipe") or one in NO_VIDEOS for one in formats)
            return bool(container.streams.video) and not is_picture
    except AV_ERRORS:
        return False


def _is_frame_folder(folder: str, files: Sequence[str]) -> bool:
    """Tell whether the files of a folder are the frames of one video: a series of images, and no video."""
    if sum(map(is_image, files)) < 2 or any(_ends_like_a_video(name) for name in files):
        return False
    try:
        return bool(images_of(folder))
    except VideoError:
        return False


def _ends_like_a_video(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in SUFFIXES  # noqa: PTH122
