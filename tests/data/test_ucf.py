"""The official lists of UCF-101, written by hand."""

import pytest
from listed import assert_at, names_and_labels, windows, write_videos, written

from mgexp.data.formats import read_ucf101

CLASSES = {"ApplyEyeMakeup": 0, "HandstandPushups": 36}
TRAIN = """ApplyEyeMakeup/v_ApplyEyeMakeup_g08_c01.avi 1
HandstandPushups/v_HandStandPushups_g08_c01.avi 37
"""
FILES = (
    "ApplyEyeMakeup/v_ApplyEyeMakeup_g08_c01.avi",
    "HandstandPushups/v_HandStandPushups_g08_c01.avi",
)
TEST = "\n".join(FILES)


@pytest.fixture
def root(tmp_path):
    return write_videos(tmp_path / "UCF-101", *FILES)


@pytest.fixture
def read(tmp_path, root):
    def read(content):
        return read_ucf101(written(tmp_path / "list01.txt", content), root, CLASSES).existing()

    return read


@pytest.mark.parametrize("content", [TRAIN, TEST, windows(TRAIN), TEST + "\n\n  \n"])
def test_the_class_is_the_folder(content, read, root):
    assert names_and_labels(root, read(content)) == [(FILES[0], 0), (FILES[1], 36)]


@pytest.mark.parametrize("content", [TRAIN, TRAIN.replace(".avi", ".mp4")])
def test_converted_videos_are_found(content, read, root):
    converted = [name.replace(".avi", ".mp4") for name in FILES]
    for name, other in zip(FILES, converted, strict=True):
        (root / name).rename(root / other)
    assert names_and_labels(root, read(content)) == [(converted[0], 0), (converted[1], 36)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ApplyEyeMakeup/v_x.avi 2", "'ApplyEyeMakeup/v_x.avi 2'"),
        ("Juggling/v_x.avi 1", "'Juggling'"),
        ("v_x.avi 1", "'v_x.avi 1'"),
        (FILES[0], "'{root}/" + FILES[0]),
    ],
)
def test_a_bad_line_is_one_problem_and_the_others_are_read(line, said, read, root):
    found = read(TRAIN + line)
    assert_at(f"{root.parent}/list01.txt:3", said.format(root=root), found)
    assert len(found.records) == 2
