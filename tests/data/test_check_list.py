"""Paths of list files, whatever the labels."""

import pytest

from mgexp.data.check_list import listed_paths
from mgexp.errors import InputError


def write(path, content):
    path.write_text(content)
    return path


def test_paths_of_several_lists_each_once_in_their_order(tmp_path):
    one = write(tmp_path / "one.csv", "b.mp4 0\n\nmy a.mp4 1\r\n")
    other = write(tmp_path / "other.csv", f"c.mp4 1,5,7\n./b.mp4 0\n{tmp_path}/d.mp4 x\n")
    found = listed_paths([one, other], tmp_path, " ")
    assert found == tuple(f"{tmp_path}/{name}.mp4" for name in ("b", "my a", "c", "d"))


def test_another_separator(tmp_path):
    path = write(tmp_path / "one.csv", "my a.mp4,0\n")
    assert listed_paths([path], tmp_path, ",") == (f"{tmp_path}/my a.mp4",)


def test_all_problems_are_in_one_message(tmp_path):
    path = write(tmp_path / "one.csv", "a.mp4 0\nb.mp4\n../c.mp4 1\n" + "d.mp4\n" * 12)
    with pytest.raises(InputError) as caught:
        listed_paths([path, tmp_path / "lost.csv"], tmp_path / "nowhere", " ")
    message = str(caught.value)
    assert "lost.csv cannot be read" in message
    assert "nowhere is not a folder" in message
    assert "one.csv, lines 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 4 more" in message


def test_a_list_without_a_video_is_a_problem(tmp_path):
    with pytest.raises(InputError, match="no line holds a video"):
        listed_paths([write(tmp_path / "one.csv", "\n")], tmp_path, " ")
