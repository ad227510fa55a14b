"""The official CSV of Charades, with the first rows as they are published and rows written by hand."""

import pytest
from listed import assert_at, the_problem, windows, write_videos, written

from mgexp.data.formats import read_charades
from mgexp.data.records import Action, ActionRecord

HEAD = "id,subject,scene,quality,relevance,verified,script,objects,descriptions,actions,length\n"
QUOTED = '"A person, cooking; ""quickly"".\nThen eats."'
ROWS = (
    f"46GP8,HR43,Kitchen,6,7,Yes,{QUOTED},food;stove,,c092 11.90 21.20;c147 0.00 12.60,24.83\n"
    "N11GT,0KZ7,Stairs,4,6,Yes,none,bag,,c098 8.60 14.20,18.33\n"
    "0IH69,6RE8,Bedroom,5,7,Yes,none,bed,,,30.33\n"
)
ACTIONS = (Action(92, 11.9, 21.2), Action(147, 0.0, 12.6))


@pytest.fixture
def root(tmp_path):
    return write_videos(tmp_path / "videos", "46GP8.mp4", "N11GT.mp4", "0IH69.mp4")


@pytest.fixture
def read(tmp_path, root):
    def read(content, num_classes=157):
        return read_charades(written(tmp_path / "list.csv", content), root, num_classes).existing()

    return read


@pytest.mark.parametrize("content", [HEAD + ROWS, windows(HEAD + ROWS)])
def test_rows_become_actions_with_their_seconds(content, read, root):
    assert read(content).records == (
        ActionRecord(str(root / "46GP8.mp4"), ACTIONS, 157),
        ActionRecord(str(root / "N11GT.mp4"), (Action(98, 8.6, 14.2),), 157),
        ActionRecord(str(root / "0IH69.mp4"), (), 157),
    )
    assert read(content).problems == ()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("AAAAA,c0921 1.0 2.0", "'c0921 1.0 2.0'"),
        ("AAAAA,c092 1.0", "'c092 1.0'"),
        ("AAAAA,c092 -1.0 2.0", "'c092 -1.0 2.0'"),
        ("AAAAA,c157 1.0 2.0", "'c157 1.0 2.0'"),
        ("AAAAA,c092 3.0 2.0", "'c092 3.0 2.0'"),
        ("../AA,c092 1.0 2.0", "'../AA'"),
        ("AAAAA,c001 0.0 1.0,c002 1.0 2.0", "'c002 1.0 2.0'"),
        ("N11GT,c092 1.0 2.0", "'{root}/N11GT.mp4'"),
    ],
)
def test_a_bad_row_is_one_problem(row, said, read, root):
    found = read(f"id,actions\n46GP8,c001 0 1\nN11GT,\n{row}\n")
    assert_at(f"{root.parent}/list.csv:4", said.format(root=root), found)


def test_a_list_in_which_nothing_happens_is_a_problem(read):
    assert "no video has an action" in the_problem(read("id,actions\n46GP8,\nN11GT,\n"))


# c001 from 2 to 4 s, c002 at 6 s: closed intervals, as the frames of PySlowFast's lists have their labels.
@pytest.mark.parametrize(
    ("span", "labels"),
    [
        (None, {1, 2}),
        ((0.0, 1.9), set()),
        ((0.0, 2.0), {1}),
        ((2.5, 3.0), {1}),
        ((4.0, 6.0), {1, 2}),
        ((4.1, 5.9), set()),
        ((0.0, 9.0), {1, 2}),
    ],
)
def test_the_labels_of_a_span_are_those_of_the_actions_that_overlap_it(span, labels):
    record = ActionRecord("a.mp4", (Action(1, 2.0, 4.0), Action(2, 6.0, 6.0)), 4)
    assert record.target(span) == tuple(float(label in labels) for label in range(4))
