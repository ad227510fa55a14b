"""Which lines of an earlier check still hold."""

import os

import pytest

from mgexp.run.files import read_jsonl
from mgexp.run.folder import CheckDir
from mgexp.video.check import CheckLog, VideoCheck


@pytest.fixture
def video(tmp_path):
    path = tmp_path / "a.mp4"
    path.write_bytes(b"video")
    return path


@pytest.fixture
def log(tmp_path):
    """A log of checks made with this setting, in one folder."""

    def log(quick=False, limit_seconds=60.0):
        return CheckLog(CheckDir(tmp_path), quick, limit_seconds)

    return log


def test_a_line_has_the_fields_of_the_contract(log, video, tmp_path):
    check = VideoCheck(str(video), "ok", "", 40, 30.0, 1.5, 64, 48, "h264", 0.25)
    log().add(check)
    (line,) = read_jsonl(tmp_path / "videos.jsonl")
    state = {"bytes": 5, "mtime_ns": video.stat().st_mtime_ns, "quick": False}
    assert line == {
        "path": str(video),
        "kind": "ok",
        "reason": "",
        "frames": 40,
        "fps": 30.0,
        "duration_seconds": 1.5,
        "width": 64,
        "height": 48,
        "codec": "h264",
        "seconds": 0.25,
        **state,
    }
    assert log().known([str(video)]) == {str(video): check}


def test_only_what_was_asked_for_is_known_and_the_rest_is_kept(log, video, tmp_path):
    for name in (str(video), "other.mp4"):
        log().add(VideoCheck(name, "missing"))
    assert list(log().known(["other.mp4"])) == ["other.mp4"]
    assert len(read_jsonl(tmp_path / "videos.jsonl")) == 2


@pytest.mark.parametrize("change", ["size", "mtime", "gone"])
def test_a_file_that_changed_is_not_known(change, log, video, tmp_path):
    log().add(VideoCheck(str(video), "ok"))
    if change == "size":
        before = video.stat().st_mtime_ns
        video.write_bytes(b"another")
        os.utime(video, ns=(before, before))
    elif change == "mtime":
        os.utime(video, ns=(1, 1))
    else:
        video.unlink()
    assert log().known([str(video)]) == {}
    assert read_jsonl(tmp_path / "videos.jsonl") == []


def test_a_missing_video_is_known_until_it_is_there(log, video):
    video.unlink()
    log().add(VideoCheck(str(video), "missing"))
    assert len(log().known([str(video)])) == 1
    video.write_bytes(b"video")
    assert log().known([str(video)]) == {}


@pytest.mark.parametrize(
    ("was", "now", "holds"),
    [(True, True, 1), (False, True, 1), (False, False, 1), (True, False, 0)],
)
def test_a_full_check_does_not_trust_a_quick_one(was, now, holds, log, video):
    log(quick=was).add(VideoCheck(str(video), "ok"))
    assert len(log(quick=now).known([str(video)])) == holds


@pytest.mark.parametrize(("limit_seconds", "holds"), [(10.0, 1), (30.0, 0)])
def test_what_hung_is_tried_again_with_more_time(limit_seconds, holds, log, video):
    log().add(VideoCheck(str(video), "hung", seconds=10.01))
    assert len(log(limit_seconds=limit_seconds).known([str(video)])) == holds


def test_what_crashed_is_tried_again(log, video):
    log().add(VideoCheck(str(video), "crashed"))
    assert log().known([str(video)]) == {}


def test_a_torn_last_line_is_forgotten(log, video, tmp_path):
    log().add(VideoCheck(str(video), "ok"))
    with (tmp_path / "videos.jsonl").open("a") as file:
        file.write('{"path": "b.mp4", "ki')
    assert list(log().known([str(video), "b.mp4"])) == [str(video)]


def test_the_quarantine_lists_what_cannot_be_used(log, tmp_path):
    kinds = {"b": "hung", "a": "open_fails", "c": "ok", "d": "timestamps_not_monotonic"}
    checks = [VideoCheck(str(tmp_path / f"{name}.mp4"), kind) for name, kind in kinds.items()]
    log().write_quarantine(checks, tmp_path)
    assert (tmp_path / "quarantine.txt").read_text() == "a.mp4\nb.mp4\n"
