"""Find the videos in files and folders that a user names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from mgexp.data.entries import ENDINGS
from mgexp.errors import listed
from mgexp.text import counted
from mgexp.video.frame_folder import images_of, is_image
from mgexp.video.reader import VideoError


@dataclass(frozen=True)
class Found:
    """The paths of ``videos``, and of the files of a folder that were ``skipped``, in the order of their names."""

    videos: tuple[str, ...]
    skipped: tuple[str, ...]

    def skipped_text(self) -> str:
        """Say which files do not end like a video; "" if there are none."""
        if not self.skipped:
            return ""
        verb = "not end like a video"
        num = counted(len(self.skipped), f"file that does {verb}", f"files that do {verb}")
        return f"skipped {num}: {listed(self.skipped, 5)}"


def find_videos(names: Sequence[str]) -> Found:
    """Find the videos that ``names`` stand for. A file is taken as it is, and a folder is searched with all below.

    In a folder, a file is a video if its name ends like one, as in the lists of training, and a folder of images
    without videos is one video. Hidden files are left out without a word, and links to folders are not followed.
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
                (videos if _is_video(file) else skipped).append(path)
    return Found(tuple(dict.fromkeys(videos)), tuple(dict.fromkeys(skipped)))


def _is_frame_folder(folder: str, files: Sequence[str]) -> bool:
    """Tell whether the files of a folder are the frames of one video: a series of images, and no video."""
    if sum(map(is_image, files)) < 2 or any(map(_is_video, files)):
        return False
    try:
        return bool(images_of(folder))
    except VideoError:
        return False


def _is_video(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in ENDINGS  # noqa: PTH122
