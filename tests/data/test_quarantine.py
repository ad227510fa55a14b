"""Quarantined videos count as missing, wherever the set lies."""

import pytest

from mgexp.data.quarantine import quarantine_text, without_quarantined
from mgexp.data.records import VideoList, VideoRecord


@pytest.fixture
def videos(tmp_path):
    records = tuple(VideoRecord(str(tmp_path / f"run/{name}.mp4"), 0) for name in "abc")
    return VideoList(records, ("/lost.mp4",), ())


@pytest.mark.parametrize(
    "content",
    ["run/b.mp4\n", "\n./run/../run/b.mp4\r\n\n", "\ufeffrun/b.mp4", "run/b.mp4\nother/d.mp4\n"],
)
def test_forms_of_the_same_file(content, videos, tmp_path):
    (tmp_path / "q.txt").write_bytes(content.encode())
    found = without_quarantined(videos, tmp_path / "q.txt", tmp_path)
    assert [record.path[-5:] for record in found.records] == ["a.mp4", "c.mp4"]
    assert found.missing == ("/lost.mp4", str(tmp_path / "run/b.mp4"))
    assert (found.num_listed, found.problems) == (4, ())


def test_absolute_paths(videos, tmp_path):
    (tmp_path / "q.txt").write_text(f"{tmp_path}/run/c.mp4\n")
    found = without_quarantined(videos, tmp_path / "q.txt", tmp_path)
    assert found.missing[1:] == (str(tmp_path / "run/c.mp4"),)


def test_an_empty_quarantine_is_fine(videos, tmp_path):
    (tmp_path / "q.txt").write_text("")
    assert without_quarantined(videos, tmp_path / "q.txt", tmp_path) == videos


def test_a_file_that_is_not_there_is_a_problem_of_the_list(videos, tmp_path):
    (problem,) = without_quarantined(videos, tmp_path / "q.txt", tmp_path).problems
    assert "DATA.QUARANTINE" in problem
    assert str(tmp_path / "q.txt") in problem
    assert "check_data.py" in problem


def test_the_file_is_relative_where_it_can_be(tmp_path):
    paths = [str(tmp_path / "b.mp4"), str(tmp_path / "a b.mp4"), "/elsewhere/c.mp4"]
    assert quarantine_text(paths, tmp_path) == "/elsewhere/c.mp4\na b.mp4\nb.mp4\n"
