"""The official split files of HMDB-51, written by hand."""

import pytest
from listed import assert_at, names_and_labels, the_problem, write_videos

from mgexp.data.formats import read_hmdb51

WAVE = "#20_Rhythm_clap_u_nm_np1_fr_goo_0.avi"
FILES = ("brush_hair/a_0.avi", "brush_hair/b [1]; c_0.avi", f"wave/{WAVE}", "wave/d_0.avi")


@pytest.fixture
def root(tmp_path):
    return write_videos(tmp_path / "videos", *FILES)


@pytest.fixture
def splits(tmp_path):
    folder = tmp_path / "splits"
    folder.mkdir()
    # The official lines end with a space; here one file also with Windows line ends.
    (folder / "brush_hair_test_split1.txt").write_text("a_0.avi 1 \nb [1]; c_0.avi 2 \n")
    (folder / "wave_test_split1.txt").write_bytes(
        f"{WAVE} 1 \r\nd_0.avi 2 \r\ne.avi 0 \r\n".encode()
    )
    (folder / "brush_hair_test_split2.txt").write_text("a_0.avi 2 \n")
    (folder / "wave_test_split2.txt").write_text("d_0.avi 1 \n")
    return folder


def read(splits, root, split="train", pattern="*_test_split1.txt", num_classes=2):
    return read_hmdb51(splits / pattern, root, num_classes, split).existing()


@pytest.mark.parametrize(
    ("split", "pattern", "wanted"),
    [
        ("train", "*_test_split1.txt", [(FILES[0], 0), (FILES[2], 1)]),
        ("val", "*_test_split1.txt", [(FILES[1], 0), (FILES[3], 1)]),
        ("train", "*_test_split2.txt", [(FILES[3], 1)]),
    ],
)
def test_the_number_of_a_line_says_what_it_is_for(split, pattern, wanted, splits, root):
    assert names_and_labels(root, read(splits, root, split, pattern)) == wanted


@pytest.mark.parametrize(
    ("line", "said"),
    [("x.avi", "'x.avi'"), ("x.avi 3", "'x.avi 3'"), ("d_0.avi 0", "'{root}/wave/d_0.avi'")],
)
def test_a_bad_line_is_one_problem(line, said, splits, root):
    with (splits / "wave_test_split1.txt").open("a") as file:
        file.write(line)
    found = read(splits, root)
    assert_at(splits / "wave_test_split1.txt:4", said.format(root=root), found)


def test_classes_are_in_the_order_of_their_names_and_not_of_their_files(tmp_path):
    """kick_ball_test_split1.txt comes before kick_test_split1.txt."""
    root = write_videos(tmp_path / "videos", "kick/a.avi", "kick_ball/b.avi")
    for name, video in (("kick", "a"), ("kick_ball", "b")):
        (tmp_path / f"{name}_test_split1.txt").write_text(f"{video}.avi 1\n")
    assert names_and_labels(root, read(tmp_path, root)) == [
        ("kick/a.avi", 0),
        ("kick_ball/b.avi", 1),
    ]


def test_files_of_two_splits_are_refused(splits, root):
    assert "takes files of several splits: 1, 2" in the_problem(
        read(splits, root, pattern="*.txt", num_classes=4)
    )


def test_another_file_among_them_is_a_problem(splits, root):
    (splits / "notes_split1.txt").write_text("x")
    assert_at(splits, "'notes_split1.txt'", read(splits, root, pattern="*_split1.txt"))


def test_no_file_is_a_problem(splits, root):
    (problem,) = read(splits, root, pattern="*_test_split3.txt").problems
    assert problem.startswith(f"no file is called {splits}/*_test_split3.txt")
