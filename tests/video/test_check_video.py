"""What is found in files that are wrong in one known way each, and in good ones."""

import os

import pytest
from odd_videos import (
    EMPTY_GIF,
    cut,
    damage_frames,
    write_four_seconds,
    write_pictures,
    write_sound,
)
from videos import LONG_GOP, write_video

from mgexp.video.check import KINDS, USABLE_KINDS, check_video
from mgexp.video.pyav import open_pyav
from mgexp.video.reader import VideoError


def write_bytes(path, content):
    path.write_bytes(content)
    return path


BOTH = ((32, 48), (64, 48))
MAKERS = {
    "ok": lambda path: write_video(path / "a.mp4"),
    "timestamps_not_monotonic": lambda path: write_pictures(
        path / "a.mkv", [(32, 48)] * 4, (0, 2, 1, 3)
    ),
    "missing": lambda path: path / "a.mp4",
    "empty_file": lambda path: write_bytes(path / "a.mp4", b""),
    "open_fails": lambda path: write_bytes(path / "a.mp4", b"no video" * 50),
    "no_video_stream": lambda path: write_sound(path / "a.wav"),
    "zero_frames": lambda path: write_bytes(path / "a.gif", EMPTY_GIF),
    "decode_error_partial": lambda path: damage_frames(
        write_four_seconds(path / "a.mp4"), range(5, 40)
    ),
    "decode_error_no_frame": lambda path: damage_frames(
        write_four_seconds(path / "a.mp4"), range(40)
    ),
    "changes_size": lambda path: write_pictures(path / "a.mkv", BOTH, (0, 1)),
}


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("kind", MAKERS)
def test_each_kind_is_found(kind, quick, tmp_path):
    found = check_video(str(MAKERS[kind](tmp_path)), quick)
    assert found.kind == kind
    assert bool(found.reason) == (kind != "ok")


def test_every_kind_of_a_file_is_tested():
    """The other two are of its process: see test_check_pool.py."""
    assert {*KINDS} - {*MAKERS} == {"hung", "crashed"}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_called_usable_is_what_the_reader_of_training_can_read(kind, tmp_path):
    try:
        with open_pyav(str(MAKERS[kind](tmp_path))) as reader:
            end = reader.duration_seconds
            reader.frames_at([0.0, end / 2, end]).rgb()
        reads = True
    except VideoError:
        reads = False
    assert reads == (kind in USABLE_KINDS)


def test_what_a_good_video_holds(tmp_path):
    """videos.py writes 40 frames of 64 × 48 pixels at 30 per second."""
    found = check_video(str(write_video(tmp_path / "a.mp4", options=LONG_GOP)), quick=False)
    assert (found.frames, found.fps, found.width, found.height) == (40, 30.0, 64, 48)
    assert found.duration_seconds == pytest.approx(40 / 30)
    assert (found.codec, found.is_usable) == ("h264", True)
    assert found.seconds > 0


def test_damage_says_how_much_and_where(tmp_path):
    path = damage_frames(write_four_seconds(tmp_path / "a.mp4"), (7, 8))
    found = check_video(str(path), quick=False)
    assert found.kind == "decode_error_partial"
    assert found.reason.startswith("2 times, first after 7 frames")
    assert found.frames == 38  # it goes on after the damage


def test_a_file_that_was_cut_short_is_found(tmp_path):
    path = cut(write_four_seconds(tmp_path / "a.mp4"), 0.5)
    for quick in (False, True):
        found = check_video(str(path), quick)
        assert found.kind == "decode_error_partial"
    assert 0 < found.frames < 40


@pytest.mark.parametrize(
    ("damaged", "kind"), [(range(15, 20), "ok"), ([39], "decode_error_partial")]
)
def test_a_quick_check_decodes_the_first_and_the_last_second(damaged, kind, tmp_path):
    path = damage_frames(write_four_seconds(tmp_path / "a.mp4"), damaged)
    found = check_video(str(path), quick=True)
    assert found.kind == kind
    assert found.frames < 25  # of 40; at 10 frames per second


def test_a_quick_check_counts_no_frame_twice(tmp_path):
    """With one keyframe for the whole video, the last second is reached by way of the first."""
    ticks = [number * 1536 for number in range(40)]
    path = write_video(tmp_path / "a.mp4", options=LONG_GOP, ticks=ticks)
    assert check_video(str(path), quick=True).frames == 40


def test_what_is_no_file_is_missing(tmp_path):
    assert check_video(str(tmp_path), quick=False).kind == "missing"
    assert check_video("nul\0.mp4", quick=False).kind == "missing"
    os.mkfifo(tmp_path / "pipe.mp4")  # to open it would wait for ever
    assert check_video(str(tmp_path / "pipe.mp4"), quick=False).kind == "missing"
