"""A list names videos anywhere, and names are printable."""

import os

import pytest
from tiny import tiny_config

from mgexp.data.formats import read_list
from mgexp.data.lists import build_list


@pytest.fixture
def root(tmp_path):
    """A folder of videos with links out of it, and one video beside it."""
    folder, beside = tmp_path / "root", tmp_path / "beside"
    for path in (folder / "run" / "a.mp4", beside / "b.mp4"):
        path.parent.mkdir(parents=True)
        path.write_text("video")
    (folder / "link.mp4").symlink_to(beside / "b.mp4")
    (folder / "inside.mp4").symlink_to(folder / "run" / "a.mp4")
    (folder / "elsewhere").symlink_to(beside)
    (folder / "up").symlink_to(folder / "run")
    return folder


def config(tmp_path, root, lines):
    (tmp_path / "train.txt").write_text("".join(f"{line} 0\n" for line in lines))
    keys = {"DATA.TRAIN_LIST": str(tmp_path / "train.txt"), "DATA.PATH_PREFIX": str(root)}
    return tiny_config(tmp_path, keys)


OUTSIDE = ["link.mp4", "elsewhere/b.mp4"]
INSIDE = ["run/a.mp4", "inside.mp4", "up/a.mp4", "elsewhere/../run/a.mp4"]


def test_links_and_paths_out_of_the_root_are_followed(tmp_path, root):
    lines = [*INSIDE, *OUTSIDE, "../beside/b.mp4", f"{tmp_path}/beside/b.mp4"]
    found = build_list(config(tmp_path, root, lines), "TRAIN_LIST")
    assert (len(found.records), found.problems) == (8, ())
    beside = f"{tmp_path}/beside/b.mp4"
    wanted = [f"{root}/link.mp4", f"{root}/elsewhere/b.mp4", beside, beside]
    assert [record.path for record in found.records[4:]] == wanted


@pytest.mark.parametrize("name", ["run/\x1b[2J.mp4", "run/a\tb.mp4", "run/a\x85b.mp4"])
def test_names_with_control_characters_are_refused_and_shown_escaped(name, tmp_path, root):
    (root / name).write_text("video")
    (tmp_path / "list.txt").write_text(f"{name} 0\nrun/a.mp4 1\n")
    found = read_list(tmp_path / "list.txt", root, 2).existing()
    (problem,) = found.problems
    assert problem.startswith("names with control characters, or bytes that are no UTF-8")
    assert problem.isprintable()


def test_names_of_folders_that_are_no_utf8_are_refused(tmp_path, root):
    for name in ("link.mp4", "inside.mp4", "elsewhere", "up"):
        (root / name).unlink()
    with open(os.fsencode(root) + b"/run/\xff\n.mp4", "wb") as file:  # noqa: PTH123
        file.write(b"video")
    keys = {"DATA.FORMAT": "folders", "DATA.TRAIN_LIST": str(root), "MODEL.NUM_CLASSES": 1}
    (problem,) = build_list(tiny_config(tmp_path, keys), "TRAIN_LIST").problems
    assert str(root) + "/run/\\udcff\\n.mp4" in problem
