"""The official JSON of Something-Something V2, written by hand."""

import json

import pytest
from listed import assert_at, names_and_labels, the_problem, windows, write_videos

from mgexp.data.formats import read_ssv2

CLASSES = {
    "Holding something next to something": 0,
    "Pushing something so that it slightly moves": 1,
}
ENTRIES = [
    {
        "id": "78687",
        "label": "holding potato next to vicks vaporub bottle",
        "template": "Holding [something] next to [something]",
        "placeholders": ["potato", "vicks vaporub bottle"],
    },
    {
        "id": "42326",
        "label": "pushing a thing so that it slightly moves",
        "template": "Pushing [something] so that it slightly moves",
        "placeholders": ["a thing"],
    },
]


@pytest.fixture
def root(tmp_path):
    return write_videos(tmp_path / "videos", "78687.webm", "42326.mp4")


@pytest.fixture
def read(tmp_path, root):
    def read(content):
        path = tmp_path / "train.json"
        if not isinstance(content, bytes):
            content = (content if isinstance(content, str) else json.dumps(content)).encode()
        path.write_bytes(content)
        return read_ssv2(path, root, CLASSES).existing()

    return read


@pytest.mark.parametrize("content", [ENTRIES, windows(json.dumps(ENTRIES, indent=1))])
def test_templates_lose_their_brackets_and_files_are_webm_or_mp4(content, read, root):
    assert names_and_labels(root, read(content)) == [("78687.webm", 0), ("42326.mp4", 1)]


def test_an_id_may_be_a_number(read, root):
    assert names_and_labels(root, read([{**ENTRIES[0], "id": 78687}])) == [("78687.webm", 0)]


def test_a_missing_video_is_named_as_webm(read, root):
    found = read([*ENTRIES, {**ENTRIES[0], "id": "9"}])
    assert found.missing == (str(root / "9.webm"),)
    assert len(found.records) == 2


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({**ENTRIES[0], "template": "Eating [something]"}, "'Eating [somethi"),
        ({"id": "1"}, "''"),
        ({"template": "Eating [something]"}, "''"),
        ({**ENTRIES[0], "id": "../1"}, "'../1'"),
        (ENTRIES[1], "'{root}/42326.webm'"),
        ("78687", "'78687'"),
    ],
)
def test_a_bad_entry_is_one_problem_and_the_others_are_read(entry, said, read, root):
    found = read([*ENTRIES, entry])
    assert_at(f"{root.parent}/train.json, entry 3", said.format(root=root), found)
    assert len(found.records) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[{", "not a JSON array of videos (JSONDecodeError"),
        ("[" * 100_000, "not a JSON array of videos (RecursionError"),
        ('{"id": "1"}', "not a JSON array of videos (TypeError: a dict)"),
        ("[]", "train.json is empty"),
    ],
)
def test_a_file_that_is_no_list_is_a_problem(content, said, read):
    assert said in the_problem(read(content))
