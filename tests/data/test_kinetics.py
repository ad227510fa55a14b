"""The official CSV of Kinetics, against files and rows written by hand."""

import pytest
from listed import assert_at, names_and_labels, the_problem, windows, write_videos, written

from mgexp.data.formats import kinetics_labels, read_kinetics
from mgexp.errors import InputError

CLASSES = {"air drumming": 0, "massaging person's head": 1, "zumba": 2}
K400 = """label,youtube_id,time_start,time_end,split,is_cc
air drumming,0wR5jVB-WPk,417,427,train,0
"massaging person's head",-3B32lodo2M,59,69,train,0
zumba,___qijXy2f0,11,21,train,1
"""
FILES = ("0wR5jVB-WPk_000417_000427.mp4", "-3B32lodo2M_000059_000069.mp4")
LAST = "___qijXy2f0_000011_000021.mp4"


@pytest.fixture
def root(tmp_path):
    return write_videos(tmp_path / "videos", *FILES, LAST)


@pytest.fixture
def read(tmp_path, root):
    def read(content, split="train", folder=root):
        return read_kinetics(
            written(tmp_path / "list.csv", content), folder, CLASSES, split
        ).existing()

    return read


@pytest.mark.parametrize(
    "content",
    [
        K400,
        windows(K400),
        K400.replace(",is_cc", "").replace(",0\n", "\n").replace(",1\n", "\n"),  # Kinetics-600
        K400.replace("417,427", "417.0,427.0"),
        K400 + "\n\n",
        "time_end,time_start,youtube_id,label\n"  # in another order
        "427,417,0wR5jVB-WPk,air drumming\n"
        "69,59,-3B32lodo2M,massaging person's head\n"
        "21,11,___qijXy2f0,zumba\n",
    ],
)
def test_rows_become_clips_with_the_number_of_their_label(content, read, root):
    assert names_and_labels(root, read(content)) == [(FILES[0], 0), (FILES[1], 1), (LAST, 2)]


@pytest.mark.parametrize(
    "place",
    [
        f"train/{FILES[0]}",
        f"air drumming/{FILES[0]}",
        f"air_drumming/{FILES[0]}",
        f"train/air drumming/{FILES[0]}",
        f"train/air_drumming/{FILES[0]}",
    ],
)
def test_a_clip_may_lie_in_a_folder_of_its_split_or_class(place, read, tmp_path):
    folder = write_videos(tmp_path / "other", place)
    found = read("\n".join(K400.split("\n")[:2]), folder=folder)
    assert names_and_labels(folder, found) == [(place, 0)]


@pytest.mark.parametrize("ending", [".mkv", ".webm", ".avi"])
def test_a_clip_may_have_the_ending_of_its_download(ending, read, root):
    other = FILES[1].replace(".mp4", ending)
    (root / FILES[1]).rename(root / other)
    assert names_and_labels(root, read(K400)) == [(FILES[0], 0), (other, 1), (LAST, 2)]


def test_missing_and_empty_clips_are_listed_at_their_usual_place(read, root):
    (root / FILES[1]).write_bytes(b"")
    (root / LAST).unlink()
    found = read(K400)
    assert found.missing == (str(root / FILES[1]), str(root / LAST))
    assert found.num_listed == 3
    assert names_and_labels(root, found) == [(FILES[0], 0)]


def test_two_clips_of_one_video_are_two_records(read, root):
    other = FILES[0].replace("417_000427", "500_000510")
    write_videos(root, other)
    found = read(K400 + "air drumming,0wR5jVB-WPk,500,510,train,0\n")
    assert names_and_labels(root, found)[-1] == (other, 0)


@pytest.mark.parametrize("name", ["val", "validate", "validation", "test"])
def test_any_split_but_training_is_for_validation(name, read, root):
    content = K400.replace(",train,", f",{name},")
    assert len(names_and_labels(root, read(content, split="val"))) == 3
    assert (
        f"{root.parent}/list.csv:2: row of the other split: '{name}'" in read(content).problems[0]
    )


ROW = "zumba,___qijXy2f0,11,21,train,1\n"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("dancing,___qijXy2f0,1,2,train,0\n", "'dancing'"),
        (",___qijXy2f0,1,2,train,0\n", "''"),
        ("zumba,../../etc,1,2,train,0\n", "'../../etc'"),
        ("zumba,short,1,2,train,0\n", "'short'"),
        ("zumba\n", "''"),
        ("zumba,___qijXy2f0,1.5,2,train,0\n", "'1.5,2'"),
        (ROW, "'{root}/___qijXy2f0_000011_000021.mp4'"),
    ],
)
def test_a_bad_row_is_one_problem_and_the_others_are_read(row, said, read, root):
    found = read(K400 + row)
    assert_at(f"{root.parent / 'list.csv'}:5", said.format(root=root), found)
    assert len(found.records) == 3


@pytest.mark.parametrize("column", ["label", "youtube_id", "time_start", "time_end"])
def test_a_missing_column_is_one_problem(column, read):
    problem = the_problem(read(K400.replace(column, "other")))
    assert "list.csv:1: " in problem
    assert f"'{column}'" in problem


def test_the_labels_of_a_list_are_its_classes(tmp_path):
    path = tmp_path / "train.csv"
    path.write_bytes(windows(K400 + ROW))
    assert kinetics_labels(path) == ("air drumming", "massaging person's head", "zumba")
    path.write_text(
        "youtube_id,time_start,time_end\n0wR5jVB-WPk,417,427\n"
    )  # the official test list
    with pytest.raises(InputError, match="column that is not there"):
        kinetics_labels(path)
