"""prepare_data.py and check_data.py on the videos of a row of SSv2; training finds the copies."""

import shutil

import pytest
from tiny import load_tool, write_config

VIDEOS = ("1.webm", "2.mp4", "3.webm")
"""Two videos for training and one for validation, of two classes."""
SSV2 = {
    "train.json": '[{"id": "1", "template": "[run]"}, {"id": "2", "template": "walk"}]',
    "validation.json": '[{"id": "3", "template": "run"}]',
    "labels.json": '{"walk": "1", "run": "0"}',
}


@pytest.fixture
def start(tmp_path):
    """Starts a tool in one process, with its output in a folder of its name; its exit code."""

    def start(tool, *words):
        option = {"prepare_data": "--store", "check_data": "--output"}[tool]
        sides = ("--short-sides", 16, "--time-limit", 0) if tool == "prepare_data" else ()
        given = (*sides, "--processes", 1, option, tmp_path / tool, *words)
        return load_tool(tool).main([str(word) for word in given])

    return start


@pytest.fixture
def cfg(tiny_data, tmp_path):
    """The YAML of the tiny row on lists and videos of SSv2, which are copies of one video."""
    root, lists = tmp_path / "videos", tmp_path / "lists"
    for folder in (root, lists):
        folder.mkdir()
    for name in VIDEOS:
        shutil.copy(tiny_data / "train0.mp4", root / name)
    for name, content in SSV2.items():
        (lists / name).write_text(content)
    keys = {"TRAIN_LIST": lists / "train.json", "VAL_LIST": lists / "validation.json"}
    keys |= {"CLASSES": lists / "labels.json", "PATH_PREFIX": root, "FORMAT": "ssv2"}
    return write_config(tmp_path / "row.yaml", {f"DATA.{name}": str(keys[name]) for name in keys})


def test_a_video_that_is_gone_and_has_copies_is_not_checked(start, cfg, tmp_path):
    assert start("prepare_data", "--cfg", cfg) == 0
    (tmp_path / "videos" / VIDEOS[1]).unlink()
    assert start("check_data", "--cfg", cfg) == 3
    assert start("check_data", "--cfg", cfg, "DATA.STORE", tmp_path / "prepare_data") == 0
    assert (tmp_path / "check_data" / "quarantine.txt").read_text() == ""


@pytest.mark.parametrize("tool", ["prepare_data", "check_data"])
def test_all_problems_of_a_row_are_in_one_message(tool, start, cfg, tmp_path, capsys):
    (tmp_path / "lists" / "train.json").write_text('[{"id": "1", "template": "jump"}, 7]')
    pairs = ("DATA.VAL_LIST", "no.json", "SOLVER.MOMENTUN", 0.9, "MODEL.LOSS_FUNC", "bce_logit")
    assert start(tool, "--cfg", cfg, *pairs) == 2
    message = capsys.readouterr().err
    said = ("SOLVER.MOMENTUN", "MODEL.LOSS_FUNC", "no.json", "template of no class", "no object")
    assert [words for words in said if words not in message] == []
    assert not (tmp_path / tool).exists()
