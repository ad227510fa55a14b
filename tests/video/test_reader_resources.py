"""What a decoder leaves behind: no open files, no memory, no threads."""

import ctypes
import os
from pathlib import Path

import pytest
from videos import GOP_8, write_video

from mgexp.video.pyav import PyavReader
from mgexp.video.reader import VideoError

NAMES = ("a.mp4", "b.mkv", "c.mp4", "broken.mp4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("videos")
    write_video(path / "a.mp4", options=GOP_8)
    write_video(path / "b.mkv", options=GOP_8)
    write_video(path / "c.mp4", pix_fmt="yuv420p10le")  # by way of a filter graph
    content = write_video(
        path / "broken.mp4", container_options={"movflags": "faststart"}
    ).read_bytes()
    (path / "broken.mp4").write_bytes(content[: len(content) // 2])
    return path


def num_entries(folder):
    return sum(1 for _ in Path(folder).iterdir())


def load(folder, num_clips):
    """Opens and reads files in turn, one of four broken."""
    for clip in range(num_clips):
        try:
            with PyavReader(str(folder / NAMES[clip % 4])) as reader:
                reader.frames_at([0.1, 0.5, 1.2])
        except VideoError:
            assert clip % 4 == 3


def resident_bytes():
    """Memory in use, without what the allocator keeps for later (as glibc does)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("num_clips", [400, pytest.param(5000, marks=pytest.mark.slow)])
def test_memory_stays_flat(num_clips, folder):
    """2 kB a clip, where a frame is 9 kB and a reader far more; 4 MB for the allocator's holes.

    Measured: 0.3 kB a clip.
    """
    load(folder, 200)
    before = resident_bytes()
    load(folder, num_clips)
    assert resident_bytes() - before < 4e6 + 2e3 * num_clips


def test_files_are_closed_after_use(folder):
    load(folder, 4)
    before = num_entries("/proc/self/fd")
    load(folder, 40)
    assert num_entries("/proc/self/fd") == before
