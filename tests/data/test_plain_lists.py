"""Lists of videos, against files and lines written by hand."""

import os

import pytest
from listed import write_videos, written

from mgexp.data.formats import read_list


@pytest.fixture
def root(tmp_path):
    return write_videos(tmp_path / "videos", "run/a.mp4", "run/b.mp4", "my walk/c d.mp4")


@pytest.fixture
def read(tmp_path, root):
    """Reads a list file of the given text, or bytes, with three classes."""

    def read(content, **how):
        return read_list(
            written(tmp_path / "train.csv", content), root, num_classes=3, **how
        ).existing()

    return read


def names(root, records):
    return [(os.path.relpath(record.path, root), record.label) for record in records]


def test_a_folder_of_images_may_be_named_with_the_ending_of_its_video(read, root):
    """A folder that is empty, or whose name only begins with that of the video, is not found."""
    (root / "run/a.mp4").rename(root / "run/x.jpg")
    for name in ("run/a", "run/c.d", "run/empty"):
        (root / name).mkdir()
    for name in ("run/a/1.jpg", "run/c.d/1.jpg"):
        (root / name).write_bytes(b"x")
    found = read("run/a.mp4 1\nrun/b.mp4 2\nrun/c.d 0\nrun/c.e 0\nrun/empty 0\nrun/c.mp4 0\n")
    assert names(root, found.records) == [("run/a", 1), ("run/b.mp4", 2), ("run/c.d", 0)]
    assert found.missing == tuple(str(root / f"run/{name}") for name in ("c.e", "empty", "c.mp4"))


@pytest.mark.parametrize(
    ("content", "separator"),
    [
        ("run/a.mp4\t1\nmy walk/c d.mp4\t2\n", " "),
        ("run/a.mp4   1\nmy walk/c d.mp4 \t 2\n", " "),
        ("run/a.mp4\t1\nmy walk/c d.mp4\t2\n", "\t"),
        ("path,label\nrun/a.mp4,1\nmy walk/c d.mp4,2\n", ","),
        ("video LABEL\nrun/a.mp4 1\nmy walk/c d.mp4 2\n", " "),
    ],
)
def test_lists_may_have_tabs_and_a_first_line_of_names(content, separator, read, root):
    found = read(content, separator=separator)
    assert names(root, found.records) == [("run/a.mp4", 1), ("my walk/c d.mp4", 2)]
    assert found.problems == ()


def test_lists_of_mmaction2_have_the_number_of_images_before_the_label(read, root):
    found = read("my walk/c d.mp4 163 2\nrun/a.mp4 12 0\n", has_lengths=True)
    assert names(root, found.records) == [("my walk/c d.mp4", 2), ("run/a.mp4", 0)]
    (problem,) = read("run/a.mp4 1\nrun/b.mp4 many 1\n", has_lengths=True).problems[:1]
    assert ":1: " in problem
    assert problem.endswith("'run/a.mp4 1'")


@pytest.mark.parametrize(
    "content",
    [
        "run/a.mp4 1\nrun/b.mp4 2",  # no newline at the end
        "\nrun/a.mp4 1\n\n   \nrun/b.mp4 2\n\n",
        "run/a.mp4 1\r\nrun/b.mp4 2\r\n",
        b"\xef\xbb\xbfrun/a.mp4 1\nrun/b.mp4 2\n",
        "run/a.mp4  1 \nrun/b.mp4\t 2\n",
        "./run/a.mp4 1\nrun/../run//b.mp4 2\n",
        "{root}/run/a.mp4 1\nrun/b.mp4 2\n",
    ],
)
def test_forms_of_the_same_list(read, root, content):
    found = read(content.replace("{root}", str(root)) if isinstance(content, str) else content)
    assert names(root, found.records) == [("run/a.mp4", 1), ("run/b.mp4", 2)]
    assert found.problems == ()


def test_a_root_folder_behind_a_link(read, root, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(root)
    (tmp_path / "list.csv").write_text(f"{root}/run/a.mp4 1\n{link}/run/b.mp4 2\n")
    found = read_list(tmp_path / "list.csv", link, 3).existing()
    assert ([record.label for record in found.records], found.problems) == ([1, 2], ())


def test_missing_files_are_apart_from_problems(read, root):
    (root / "empty.mp4").touch()
    (root / "folder.mp4").mkdir()
    found = read("run/a.mp4 0\nno.mp4 1\nno/a.mp4 2\nempty.mp4 0\nfolder.mp4 0\nrun/b.mp4 1\n")
    assert names(root, found.records) == [("run/a.mp4", 0), ("run/b.mp4", 1)]
    expected = [str(root / name) for name in ("no.mp4", "no/a.mp4", "empty.mp4", "folder.mp4")]
    assert list(found.missing) == expected
    assert found.problems == ()


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("run/b.mp4", "'run/b.mp4'"),
        ("run/b.mp4,1", "'run/b.mp4,1'"),
        ("run/b.mp4 walk", "'walk'"),
        ("run/b.mp4 1.0", "'1.0'"),
        ("run/b.mp4 1_0", "'1_0'"),
        ("run/b.mp4 3", "'3'"),
        ("run/b.mp4 -1", "'-1'"),
    ],
)
def test_a_bad_line_is_a_problem_and_the_others_are_read(read, root, line, value):
    found = read(f"run/a.mp4 0\n\n{line}\n")
    (problem,) = found.problems
    assert problem.startswith(f"{root.parent / 'train.csv'}:3: ")
    assert problem.endswith(value)
    assert names(root, found.records) == [("run/a.mp4", 0)]


def test_of_many_problems_of_a_kind_the_first_ten_are_listed(read):
    found = read("".join(f"run/a.mp4 {label}\n" for label in range(25)) + "run/a.mp4\n")
    labels = [problem for problem in found.problems if "no integer from 0" in problem]
    assert len(labels) == 11
    assert "train.csv:13: " in labels[9]
    assert labels[10].endswith("... and 12 more")
    assert "train.csv:26: " in found.problems[-1]


@pytest.mark.parametrize("content", ["", "\n \n", b"\xef\xbb\xbf"])
def test_an_empty_list_is_a_problem(read, content):
    (problem,) = read(content).problems
    assert "train.csv is empty" in problem


def test_a_missing_list_and_root_folder_are_both_named(tmp_path):
    found = read_list(tmp_path / "no.csv", tmp_path / "nowhere", 3).existing()
    assert [problem.split(": ")[0] for problem in found.problems] == [
        f"list file {tmp_path}/no.csv does not exist",
        f"DATA.PATH_PREFIX {tmp_path}/nowhere",
    ]
