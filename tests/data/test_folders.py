"""A folder per class."""

from pathlib import Path

import pytest
from listed import assert_at, names_and_labels, the_problem_of, write_videos
from tiny import refuse_to_list

from mgexp.config.keys import DataKeys
from mgexp.data.formats import read_folders
from mgexp.data.lists import videos_root

CLASSES = {"my walk": 0, "run": 1}


@pytest.fixture
def folder(tmp_path):
    names = ("run/b.AVI", "run/a.mp4", "my walk/c d.webm", "run/.DS_Store", ".hidden/x.mp4")
    return write_videos(tmp_path / "train", *names)


def test_videos_have_the_class_of_their_folder_in_the_order_of_their_paths(folder):
    wanted = [("my walk/c d.webm", 0), ("run/a.mp4", 1), ("run/b.AVI", 1)]
    assert names_and_labels(folder, read_folders(folder, CLASSES).existing()) == wanted


def test_a_folder_of_images_is_a_video(folder):
    write_videos(folder, "run/clip/img_1.JPG", "run/clip/img_2.JPG")
    wanted = [("run/a.mp4", 1), ("run/b.AVI", 1), ("run/clip", 1)]
    assert names_and_labels(folder, read_folders(folder, CLASSES).existing())[1:] == wanted


def test_paths_have_no_dots_wherever_the_folder_is_named_from(folder, monkeypatch):
    monkeypatch.chdir(folder / "run")
    found = read_folders(Path("../../train"), CLASSES).existing()
    assert [record.path for record in found.records][1:] == [
        f"{folder}/run/a.mp4",
        f"{folder}/run/b.AVI",
    ]


@pytest.mark.parametrize(
    ("folders", "root"),
    [
        (("/data/train", "/data/val"), "/data"),
        (("/data/train",), "/data"),
        (("/data/all", "/data/all/"), "/data"),
        (("/data/train", "/data/other/val"), "/data"),
        (("/data/x/../train", "/data2/val"), "/"),
    ],
)
def test_the_root_holds_the_folders_of_both_lists(folders, root):
    train, val = (*folders, "")[:2]
    data = DataKeys(FORMAT="folders", TRAIN_LIST=train, VAL_LIST=val)
    assert videos_root(data) == Path(root)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("x.mp4", "", "'x.mp4'"),
        ("jump/x.mp4", "", "'jump'"),
        ("run/notes.txt", "run", "'notes.txt'"),
        ("run/deep/x.mp4", "run", "'deep'"),
    ],
)
def test_what_is_no_video_of_a_class_is_one_problem(name, place, value, folder):
    write_videos(folder, name)
    found = read_folders(folder, CLASSES).existing()
    assert_at(folder / place, value, found)
    assert len(found.records) == 3


def test_a_class_without_videos_is_a_problem(folder):
    (folder / "my walk/c d.webm").unlink()
    assert_at(folder, "'my walk'", read_folders(folder, CLASSES).existing())


@pytest.mark.parametrize(
    ("name", "said"), [("no", "does not exist"), ("run/a.mp4", "is not a folder")]
)
def test_a_folder_that_is_none_is_a_problem(name, said, folder):
    problem = the_problem_of(lambda: read_folders(folder / name, CLASSES))
    assert f"folder of videos {folder / name} {said}" in problem


def test_a_folder_that_cannot_be_read_is_one_problem(folder, monkeypatch):
    refuse_to_list(monkeypatch, "run")
    problem = the_problem_of(lambda: read_folders(folder, CLASSES))
    assert problem.startswith(f"{folder}/run cannot be read: Permission denied")
