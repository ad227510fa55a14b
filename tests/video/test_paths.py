"""Names of videos below a root folder, and a few of many."""

from pathlib import Path

from mgexp.video.paths import Root, evenly_spaced


def test_names_are_relative_where_they_can_be(tmp_path):
    names = [Root(tmp_path).name(path) for path in (f"{tmp_path}/a b.mp4", "/elsewhere/c.mp4")]
    assert names == ["a b.mp4", "/elsewhere/c.mp4"]
    assert Root(Path("/")).name("/data/a.mp4") == "data/a.mp4"


def test_a_video_has_one_name_below_a_link_to_the_root_and_below_the_root(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    root = Root(tmp_path / "link")
    given = [f"{tmp_path}/{folder}/a.mp4" for folder in ("link", "real")]
    assert {root.name(path) for path in given} == {"a.mp4"}
    assert {root.path(path) for path in [*given, "a.mp4"]} == {f"{tmp_path}/link/a.mp4"}


def test_some_of_many_are_evenly_spaced():
    wanted = {0: "abcdefghij", 10: "abcdefghij", 99: "abcdefghij", 5: "acegi", 3: "adg", 1: "a"}
    for num, expected in wanted.items():
        assert evenly_spaced("abcdefghij", num) == tuple(expected)
