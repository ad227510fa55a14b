"""Processes that hang are killed, those that die are replaced, and no video is lost or done twice."""

import multiprocessing
import time

import bad_checks
import pytest
from videos import write_video

from mgexp.video.check import check_videos


def run(paths, num_processes=2, limit_seconds=30.0, quick=False):
    return list(
        check_videos(
            paths,
            quick=quick,
            num_processes=num_processes,
            limit_seconds=limit_seconds,
            check=bad_checks.check,
        )
    )


@pytest.mark.parametrize("num_processes", [1, 2])
def test_every_video_is_checked_once(num_processes):
    paths = [f"{index}.mp4" for index in range(9)]
    found = run(paths, num_processes, quick=True)
    assert sorted(check.path for check in found) == paths
    assert {check.reason for check in found} == {"quick=True"}
    assert len({check.frames for check in found}) <= num_processes  # their process ids
    assert multiprocessing.active_children() == []


def test_a_video_that_hangs_is_killed_at_its_limit_and_the_others_go_on():
    start = time.monotonic()
    found = {check.path: check for check in run(["hang", "a", "b", "c"], 2, limit_seconds=1.0)}
    assert {path: check.kind for path, check in found.items()} == {
        "hang": "hung",
        **dict.fromkeys("abc", "ok"),
    }
    assert found["hang"].seconds >= 1.0
    assert time.monotonic() - start < 20
    assert multiprocessing.active_children() == []


def test_a_process_that_dies_names_how_and_is_replaced():
    found = {check.path: check for check in run(["segfault", "leave", "a"], num_processes=1)}
    assert [found[path].kind for path in ("segfault", "leave", "a")] == ["crashed", "crashed", "ok"]
    assert "signal SIGSEGV" in found["segfault"].reason
    assert "exit code 7" in found["leave"].reason


def test_no_videos_need_no_process():
    assert run([]) == []


def test_real_videos_are_checked(tmp_path):
    path = str(write_video(tmp_path / "a.mp4"))
    (found,) = check_videos([path], quick=False, num_processes=4, limit_seconds=30.0)
    assert (found.path, found.kind, found.frames) == (path, "ok", 40)


def test_who_stops_early_leaves_no_process():
    checking = check_videos(
        ["a", "b", "hang"], quick=False, num_processes=2, limit_seconds=99.0, check=bad_checks.check
    )
    next(checking)
    checking.close()
    assert multiprocessing.active_children() == []
