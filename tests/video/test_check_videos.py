"""Checks of videos: what is found in a file, in processes, in a log, in a table."""

import json
import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path

import av
import bad_checks
import numpy as np
import pytest
from odd_videos import (
    EMPTY_GIF,
    TICKS_AT_10_FPS,
    cut,
    damage_frames,
    write_four_seconds,
    write_pictures,
)
from PIL import Image
from videos import LONG_GOP, write_video, write_wav

from mgexp.run.files import read_jsonl
from mgexp.run.folder import CheckDir
from mgexp.video.check import KINDS, USABLE_KINDS, VideoCheck, check_video
from mgexp.video.check_log import (
    CheckSummary,
    add_check,
    check_videos,
    known_checks,
    write_quarantine,
)
from mgexp.video.pyav import PyavReader
from mgexp.video.reader import VideoError

# What is found in files that are wrong in one known way each, and in good ones.


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
    "no_video_stream": lambda path: write_wav(path / "a.wav"),
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
    """Two others are of its process: see below. Two are of folders: see test_frame_folder.py."""
    assert {*KINDS} - {*MAKERS} == {"hung", "crashed", "no_sequence", "sizes_differ"}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_called_usable_is_what_the_reader_of_training_can_read(kind, tmp_path):
    try:
        with PyavReader(str(MAKERS[kind](tmp_path))) as reader:
            end = reader.duration_seconds
            reader.frames_at([0.0, end / 2, end])
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


def test_the_mean_frame_is_that_of_every_tenth_frame(tmp_path):
    """The left half is grey 100 in the first frame and 200 in the eleventh; all others are black."""
    pictures = np.zeros((12, 64, 64), np.uint8)
    pictures[0, :, :32], pictures[10, :, :32] = 100, 200
    (tmp_path / "folder").mkdir()
    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        stream = container.add_stream("ffv1", rate=30, width=64, height=64, pix_fmt="gray")
        for number, picture in enumerate(pictures):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "gray")))
            Image.fromarray(picture).save(tmp_path / f"folder/{number:02}.png")
        container.mux(stream.encode())
    for name in ("a.mkv", "folder"):
        found = check_video(str(tmp_path / name), quick=False)
        assert (found.kind, found.mean_frame) == ("ok", ("96" * 4 + "00" * 4) * 8)


def test_damage_says_how_much_and_where(tmp_path):
    path = damage_frames(write_four_seconds(tmp_path / "a.mp4"), (7, 8))
    found = check_video(str(path), quick=False)
    assert found.kind == "decode_error_partial"
    assert found.reason.startswith("2 times, first after 7 frames")
    assert found.frames == 38  # it goes on after the damage


@pytest.mark.parametrize("quick", [False, True])
def test_a_file_that_was_cut_short_is_found(quick, tmp_path):
    path = cut(write_four_seconds(tmp_path / "a.mp4"), 0.5)
    found = check_video(str(path), quick)
    assert found.kind == "decode_error_partial"
    assert 0 < found.frames < 40


@pytest.mark.parametrize("quick", [False, True])
def test_a_matroska_file_that_was_cut_ends_before_its_header_says(quick, tmp_path):
    """It ends without an error, and the reader would show its last frame for the rest of the time."""
    path = cut(write_four_seconds(tmp_path / "a.mkv"), 0.5)
    found = check_video(str(path), quick)
    assert found.kind == "decode_error_partial"
    end = (found.frames - 1) / 10 + 1 / 30
    assert f"the frames end at {end:.1f} s, but the header says 3.9 s" in found.reason


SLOW = [0, 5 * 15360]
"""Two frames, 5 seconds apart."""


@pytest.mark.parametrize(
    ("name", "options", "ticks"),
    [
        ("a.ts", LONG_GOP, TICKS_AT_10_FPS),
        # One keyframe for all: the last second is reached by way of the first, and no frame counts twice.
        ("a.mp4", LONG_GOP, TICKS_AT_10_FPS),
        ("a.mp4", {"tune": "zerolatency"}, SLOW),
        ("a.mkv", {"tune": "zerolatency"}, SLOW),
    ],
)
def test_a_quick_check_does_not_call_an_end_lost_that_its_seek_misses(
    name, options, ticks, tmp_path
):
    path = write_video(tmp_path / name, options=options, ticks=ticks)
    found = check_video(str(path), quick=True)
    assert (found.kind, found.frames) == ("ok", len(ticks))


@pytest.mark.parametrize(
    ("damaged", "kind"), [(range(15, 20), "ok"), ([39], "decode_error_partial")]
)
def test_a_quick_check_decodes_the_first_and_the_last_second(damaged, kind, tmp_path):
    path = damage_frames(write_four_seconds(tmp_path / "a.mp4"), damaged)
    found = check_video(str(path), quick=True)
    assert found.kind == kind
    assert found.frames < 25  # of 40; at 10 frames per second


def test_what_is_no_file_is_missing(tmp_path):
    assert check_video("nul\0.mp4", quick=False).kind == "missing"
    os.mkfifo(tmp_path / "pipe.mp4")  # to open it would wait for ever
    assert check_video(str(tmp_path / "pipe.mp4"), quick=False).kind == "missing"


# Processes that hang are killed, those that die are replaced, and no video is lost or done twice.


def run(paths, limit_seconds, quick=False):
    how = {"quick": quick, "num_processes": 2, "limit_seconds": limit_seconds}
    return check_videos(paths, **how, check=bad_checks.check)


def test_a_check_that_hangs_or_ends_its_process_is_named_and_the_others_go_on():
    """test_processes.py tests the pool itself."""
    start = time.monotonic()
    paths = ["hang", "segfault", "leave", "a"]
    found = {check.path: check for check in run(paths, limit_seconds=1.0, quick=True)}
    assert [found[path].kind for path in paths] == ["hung", "crashed", "crashed", "ok"]
    assert found["hang"].seconds >= 1.0
    assert "signal SIGSEGV" in found["segfault"].reason
    assert "exit code 7" in found["leave"].reason
    assert found["a"].reason == "quick=True"
    assert time.monotonic() - start < 20


def test_who_stops_early_leaves_no_process():
    checking = run(["a", "b", "hang"], limit_seconds=99.0)
    next(checking)
    checking.close()
    assert multiprocessing.active_children() == []


# Which lines of an earlier check still hold.


@pytest.fixture
def video(tmp_path):
    path = tmp_path / "a.mp4"
    path.write_bytes(b"video")
    return path


@pytest.fixture
def add(tmp_path):
    """Adds the line of a check, with the state of the file now if the check has none."""

    def add(check, quick=False):
        if check.mtime_ns is None:
            status = Path(check.path).stat()
            check = replace(check, bytes=status.st_size, mtime_ns=status.st_mtime_ns)
        add_check(CheckDir(tmp_path), check, quick)

    return add


@pytest.fixture
def known(tmp_path):
    """The checks of paths that hold for another check of this kind."""

    def known(*paths, quick=False, limit_seconds=60.0):
        return known_checks(CheckDir(tmp_path), [*map(str, paths)], quick, limit_seconds)

    return known


def test_a_line_has_the_fields_of_the_contract(add, known, video, tmp_path):
    check = VideoCheck(str(video), "ok", "", 40, 30.0, 1.5, 64, 48, "h264", 0.25, "00ff")
    add(check)
    (line,) = read_jsonl(tmp_path / "videos.jsonl")
    state = {"bytes": 5, "mtime_ns": video.stat().st_mtime_ns, "quick": False}
    names = {"path": str(video), "kind": "ok", "reason": "", "codec": "h264"}
    numbers = {"frames": 40, "fps": 30.0, "duration_seconds": 1.5, "width": 64, "height": 48}
    assert line == {**names, **numbers, "seconds": 0.25, "mean_frame": "00ff", **state}
    assert known(video) == {str(video): check}
    # A line of an earlier version has no mean frame.
    del line["mean_frame"]
    (tmp_path / "videos.jsonl").write_text(json.dumps(line) + "\n")
    assert known(video) == {str(video): replace(check, mean_frame="")}


@pytest.mark.parametrize("change", ["size", "mtime", "gone"])
def test_a_file_that_changed_is_not_known(change, add, known, video, tmp_path):
    add(VideoCheck(str(video), "ok"))
    if change == "size":
        before = video.stat().st_mtime_ns
        video.write_bytes(b"another")
        os.utime(video, ns=(before, before))
    elif change == "mtime":
        os.utime(video, ns=(1, 1))
    else:
        video.unlink()
    assert known(video) == {}
    assert read_jsonl(tmp_path / "videos.jsonl") == []


def test_a_video_that_changes_while_it_is_decoded_is_checked_again(add, known, tmp_path):
    path = write_video(tmp_path / "a.mp4")
    found = check_video(str(path), quick=False)
    os.utime(path, ns=(1, 1))
    add(found)
    assert known(path) == {}
    add(check_video(str(path), quick=False))
    assert known(path)[str(path)].frames == 40


def test_a_video_that_comes_while_it_is_checked_is_checked_again(known, tmp_path):
    late = tmp_path / "late.mp4"
    found = replace(check_video(str(late), quick=False), kind="empty_file")
    write_video(late)
    add_check(CheckDir(tmp_path), found, quick=False)
    assert known(late) == {}


@pytest.mark.parametrize(
    ("check", "was", "now", "holds"),
    [
        # It may be a fault of the system, such as no right to read the file.
        *(
            ({"kind": kind}, {}, {}, 0)
            for kind in ("missing", "open_fails", "no_sequence", "crashed")
        ),
        ({"kind": "ok"}, {"quick": True}, {"quick": True}, 1),
        ({"kind": "ok"}, {"quick": False}, {"quick": True}, 1),
        ({"kind": "ok"}, {"quick": False}, {"quick": False}, 1),
        ({"kind": "ok"}, {"quick": True}, {"quick": False}, 0),
        ({"kind": "hung", "seconds": 10.01}, {}, {"limit_seconds": 10.0}, 1),
        ({"kind": "hung", "seconds": 10.01}, {}, {"limit_seconds": 30.0}, 0),
    ],
)
def test_a_check_is_trusted_where_another_would_find_no_more(
    check, was, now, holds, add, known, video
):
    add(VideoCheck(str(video), **check), **was)
    assert len(known(video, **now)) == holds


def test_a_torn_last_line_is_forgotten(add, known, video, tmp_path):
    add(VideoCheck(str(video), "ok"))
    with (tmp_path / "videos.jsonl").open("a") as file:
        file.write('{"path": "b.mp4", "ki')
    assert list(known(video, "b.mp4")) == [str(video)]


def test_the_quarantine_lists_what_cannot_be_used(tmp_path):
    kinds = {"b": "hung", "a": "open_fails", "c": "ok", "d": "timestamps_not_monotonic"}
    checks = [VideoCheck(str(tmp_path / f"{name}.mp4"), kind) for name, kind in kinds.items()]
    write_quarantine(CheckDir(tmp_path), checks, tmp_path)
    assert (tmp_path / "quarantine.txt").read_text() == "a.mp4\nb.mp4\n"


@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_the_duration_is_that_of_the_reader_also_if_the_video_starts_late(suffix, tmp_path):
    late = [5 * 15360 + 512 * number for number in range(30)]
    path = write_video(tmp_path / f"a.{suffix}", ticks=late)
    with PyavReader(str(path)) as reader:
        assert reader.duration_seconds == pytest.approx(1.0, abs=0.05)
    assert check_video(str(path), quick=False).duration_seconds == pytest.approx(1.0, abs=0.05)


def test_names_of_images_cannot_control_the_terminal():
    text = CheckSummary([VideoCheck("a", "open_fails", "\x1b[31mRED_1.jpg")], 0).as_text()
    assert "\x1b" not in text and "RED_1.jpg" in text
