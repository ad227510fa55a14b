"""Quarantined videos count as missing, wherever the set lies."""

import pytest

from mgexp.data.lists import (
    read_quarantine,
    unmatched_problem,
    without_quarantined,
)
from mgexp.data.records import VideoList, VideoRecord


@pytest.fixture
def videos(tmp_path):
    records = tuple(VideoRecord(str(tmp_path / f"run/{name}.mp4"), 0) for name in "abc")
    return VideoList(records, ("/lost.mp4",), ())


def used(videos, folder):
    """The list, with the quarantine of the folder."""
    return without_quarantined(videos, read_quarantine(folder / "q.txt", folder))


@pytest.mark.parametrize(
    "content",
    ["run/b.mp4\n", "\n./run/../run/b.mp4\r\n\n", "\ufeffrun/b.mp4", "run/b.mp4\nother/d.mp4\n"],
)
def test_forms_of_the_same_file(content, videos, tmp_path):
    (tmp_path / "q.txt").write_bytes(content.encode())
    found = used(videos, tmp_path)
    assert [record.path[-5:] for record in found.records] == ["a.mp4", "c.mp4"]
    assert found.missing == ("/lost.mp4", str(tmp_path / "run/b.mp4"))
    assert (found.num_listed, found.problems) == (4, ())


def test_absolute_paths(videos, tmp_path):
    (tmp_path / "q.txt").write_text(f"{tmp_path}/run/c.mp4\n")
    found = used(videos, tmp_path)
    assert found.missing[1:] == (str(tmp_path / "run/c.mp4"),)


def test_an_empty_quarantine_is_fine(videos, tmp_path):
    (tmp_path / "q.txt").write_text("")
    assert used(videos, tmp_path) == videos
    assert unmatched(tmp_path, videos) == []


def test_a_file_that_is_not_there_is_a_problem_of_the_list(videos, tmp_path):
    (problem,) = used(videos, tmp_path).problems
    assert "DATA.QUARANTINE" in problem
    assert str(tmp_path / "q.txt") in problem
    assert "check_data.py" in problem


def unmatched(folder, *lists):
    file = folder / "q.txt"
    return list(unmatched_problem(file, read_quarantine(file, folder), lists))


def test_a_quarantine_of_other_videos_is_a_problem(videos, tmp_path):
    (tmp_path / "q.txt").write_text("a.mp4\n../run/b.mp4\n/elsewhere/run/c.mp4\n")
    (problem,) = unmatched(tmp_path, videos, videos)
    assert f"{tmp_path}/q.txt: none of its 3 lines, such as '../run/b.mp4'" in problem


@pytest.mark.parametrize("line", ["run/b.mp4", "lost.mp4"])
def test_one_video_of_one_list_is_enough(line, videos, tmp_path):
    (tmp_path / "q.txt").write_text(f"other.mp4\n{line}\n")
    lost = VideoList((), (str(tmp_path / "lost.mp4"),), ())
    assert unmatched(tmp_path, lost, videos) == []


def test_a_list_with_problems_says_nothing_about_the_quarantine(videos, tmp_path):
    (tmp_path / "q.txt").write_text("a.mp4\n")
    assert unmatched(tmp_path, videos, VideoList((), (), ("does not exist",))) == []


def test_a_video_is_found_below_a_link_to_the_root(videos, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "run")
    (tmp_path / "q.txt").write_text("b.mp4\n")
    quarantine = read_quarantine(tmp_path / "q.txt", tmp_path / "link")
    assert without_quarantined(videos, quarantine).missing[1:] == (f"{tmp_path}/run/b.mp4",)
