"""Durations, files that are cut or damaged, and what travels to workers."""

import pickle

import numpy as np
import pytest
from videos import GOP_8, INTRA, LONG_GOP, frames_at, numbers_of, write_video

from mgexp.video.frame_folder import FilesAndFolders
from mgexp.video.pyav import PyavReader
from mgexp.video.reader import VideoError

NUM_FRAMES = 40


def test_a_duration_that_the_header_lacks_is_measured(tmp_path):
    options = {"live": "1"}  # as browsers record
    path = write_video(tmp_path / "live.mkv", NUM_FRAMES, container_options=options)
    with PyavReader(str(path)) as reader:
        assert reader.duration_seconds == pytest.approx(NUM_FRAMES / 30, abs=0.002)


def test_a_file_with_the_wrong_suffix_opens(tmp_path):
    path = write_video(tmp_path / "video.mkv", NUM_FRAMES)
    assert numbers_of(frames_at(path.rename(tmp_path / "video.mp4"), [0.55])) == [16]


@pytest.fixture(params=[INTRA, LONG_GOP], ids=["intra", "long_gop"])
def cut_short(tmp_path, request):
    """A file whose header, at its start, promises 40 frames, of which about half are there."""
    how = {"options": request.param, "container_options": {"movflags": "faststart"}}
    path = write_video(tmp_path / "cut.mp4", NUM_FRAMES, **how)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    return path


@pytest.mark.parametrize("times", [[0.1, 1.2], [9.0]])
def test_a_file_that_is_cut_short_is_a_video_error(cut_short, times):
    with pytest.raises(VideoError, match="cut short"):
        frames_at(cut_short, times)


def test_of_a_file_that_is_cut_short_the_frames_before_can_be_read(cut_short):
    assert numbers_of(frames_at(cut_short, [0.01, 0.11])) == [0, 3]


def test_damaged_frames_are_a_video_error(tmp_path):
    path = write_video(tmp_path / "damaged.mp4", NUM_FRAMES, options=GOP_8)
    content = bytearray(path.read_bytes())
    start = content.index(b"mdat") + 3000
    content[start : start + 2000] = bytes(2000)
    path.write_bytes(content)
    with pytest.raises(VideoError, match=r"damaged\.mp4: cannot be decoded"):
        frames_at(path, np.arange(NUM_FRAMES) / 30)


def test_openers_travel_to_workers():
    opener = FilesAndFolders(12.0)
    assert pickle.loads(pickle.dumps(opener)) == opener


def test_a_video_error_travels_between_processes():
    error = pickle.loads(pickle.dumps(VideoError("a.mp4", "is broken")))
    assert (error.path, error.reason, str(error)) == ("a.mp4", "is broken", "a.mp4: is broken")
