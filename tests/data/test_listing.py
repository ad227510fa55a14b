"""The videos of plain lists, whatever the labels, and which way of giving them was chosen."""

from pathlib import Path

import pytest

from mgexp.data.lists import Listing, choice_problems, read_listing
from mgexp.errors import InputError


def write(path, content):
    path.write_text(content)
    return path


def test_paths_of_several_lists_each_once_in_their_order(tmp_path):
    one = write(tmp_path / "one.csv", "b.mp4 0\n\nmy a.mp4 1\r\n")
    other = write(tmp_path / "other.csv", f"c.mp4 1,5,7\n./b.mp4 0\n{tmp_path}/d.mp4 x\n")
    found = read_listing([one, other], tmp_path)
    assert found.paths == tuple(f"{tmp_path}/{name}.mp4" for name in ("b", "my a", "c", "d"))
    assert found.names == ("b.mp4", "my a.mp4", "c.mp4", "d.mp4")
    assert [len(one) for one in found.lists] == [2, 3]


def test_another_separator(tmp_path):
    path = write(tmp_path / "one.csv", "my a.mp4,0\n")
    assert read_listing([path], tmp_path, ",").paths == (f"{tmp_path}/my a.mp4",)


def test_all_problems_are_in_one_message(tmp_path):
    path = write(tmp_path / "one.csv", "a.mp4 0\nb.mp4\n../c.mp4 1\n" + "d.mp4\n" * 12)
    with pytest.raises(InputError) as caught:
        read_listing([path, tmp_path / "lost.csv"], tmp_path / "nowhere")
    message = str(caught.value)
    assert "lost.csv does not exist" in message
    assert "nowhere is not a folder" in message
    assert "one.csv, lines 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 4 more" in message


def test_a_list_without_a_video_is_a_problem(tmp_path):
    with pytest.raises(InputError, match="no line holds a video"):
        read_listing([write(tmp_path / "one.csv", "\n")], tmp_path)


def test_a_video_has_one_name_below_a_link_to_the_root_and_below_the_root(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    paths = (f"{tmp_path}/link/a.mp4", f"{tmp_path}/real/a.mp4", "/elsewhere/b.mp4")
    assert Listing(tmp_path / "link", (paths,)).names == ("a.mp4", "/elsewhere/b.mp4")


def test_videos_that_are_there_keep_their_lists(tmp_path):
    write(tmp_path / "a.mp4", "x")
    write(tmp_path / "empty.mp4", "")
    a, empty, lost = (str(tmp_path / name) for name in ("a.mp4", "empty.mp4", "lost.mp4"))
    assert Listing(tmp_path, ((lost, empty), (a, lost))).present().lists == ((), (a,))


def test_where_no_video_is_there_the_first_is_named(tmp_path):
    with pytest.raises(InputError, match=r"/lost\.mp4 and 1 more: correct the folder"):
        Listing(tmp_path, (("/lost.mp4", "/more.mp4"),)).present()


PLAIN = [Path("train.csv")]


@pytest.mark.parametrize(
    ("lists", "root", "separator", "yaml", "said"),
    [
        (PLAIN, Path("v"), None, Path("row.yaml"), "plain lists (train.csv) and --cfg row.yaml"),
        ([], None, None, None, "no videos are given: add --cfg YAML"),
        (PLAIN, None, None, None, "--root is missing"),
        (PLAIN, Path("v"), "", None, "--separator is empty"),
        ([], Path("v"), None, Path("row.yaml"), "--root v is for plain lists"),
        ([], None, ",", Path("row.yaml"), "--separator ',' is for plain lists"),
    ],
)
def test_a_choice_that_is_none_is_one_problem(lists, root, separator, yaml, said):
    (problem,) = choice_problems(lists, root, separator, yaml)
    assert problem.startswith(said)


def test_lists_with_their_root_or_a_row_are_a_choice():
    assert list(choice_problems(PLAIN, Path("v"), ",", None)) == []
    assert list(choice_problems([], None, None, Path("row.yaml"))) == []
