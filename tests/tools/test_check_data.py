"""tools/check_data.py from the command line to the quarantine, and a training with it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from run_files import read_lines, refused
from tiny import NUM_TRAIN, command, data_keys, load_tool, write_config


@pytest.fixture(scope="module")
def tool():
    return load_tool("check_data")


@pytest.fixture
def check(tool, data, tmp_path):
    """Starts the tool on the training list, in one process; its exit code."""

    def check(*more):
        cfg = write_config(tmp_path / "check.yaml", data_keys(data))
        arguments = ["--cfg", cfg, "DATA.VAL_LIST", "", "--output", tmp_path / "check"]
        return tool.main([*map(str, arguments), "--processes", "1", *map(str, more)])

    return check


def break_two(data):
    """Of the training list."""
    (data / "train5.mp4").write_bytes(b"no video" * 50)
    (data / "train7.mp4").unlink()


def test_a_good_list(check, data, tmp_path, capsys):
    assert check() == 0
    assert "24 videos, 0 unusable" in capsys.readouterr().out
    lines = read_lines(tmp_path / "check" / "videos.jsonl")
    assert sorted(line["path"] for line in lines) == sorted(
        str(data / f"train{index}.mp4") for index in range(NUM_TRAIN)
    )
    assert (tmp_path / "check" / "quarantine.txt").read_text() == ""


def test_faults_are_exit_code_3_and_in_the_quarantine(check, data, tmp_path, capsys):
    break_two(data)
    assert check("--quick", "--json") == 3
    found = json.loads(capsys.readouterr().out)
    assert found["kinds"] == {"ok": 22, "missing": 1, "open_fails": 1}
    assert (found["num_videos"], found["num_unusable"], found["num_known"]) == (24, 2, 0)
    assert Path(found["quarantine"]).read_text() == "train5.mp4\ntrain7.mp4\n"


def test_a_second_call_goes_on_with_what_is_missing_or_changed(check, data, tmp_path, capsys):
    assert check() == 0
    path = tmp_path / "check" / "videos.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:20]) + lines[20][:30])  # killed in its 21st line
    first = json.loads(lines[0])["path"]
    os.utime(first, (1, 1))
    capsys.readouterr()
    assert check("--json") == 0
    assert json.loads(capsys.readouterr().out)["num_known"] == 19
    assert len(read_lines(path)) == NUM_TRAIN


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--time-limit", 0), "--time-limit 0"),
        (("DATA.PATH_PREFIX", "/nowhere"), "/nowhere"),
    ],
)
def test_bad_input_is_exit_code_2_and_writes_nothing(more, words, check, tmp_path, capsys):
    assert check(*more) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "check").exists()


def test_training_leaves_out_the_quarantine_and_counts_it(check, data, tmp_path, output, main):
    (data / "train5.mp4").write_bytes(b"no video" * 50)
    assert check() == 3
    changes = {**data_keys(data), "DATA.QUARANTINE": str(tmp_path / "check" / "quarantine.txt")}
    short = {"SOLVER.STEPS": [0, 0.5], "SOLVER.MAX_EPOCH": 1, "TRAIN.NUM_EVALUATIONS": 1}
    changes |= {"DATA.MAX_UNUSABLE_SHARE": 0.05, **short}  # 1 of 24
    assert main(command(write_config(tmp_path / "tiny.yaml", changes), output)) == 0
    result = json.loads((output / "result.json").read_text())
    assert (result["num_unusable_videos"], result["num_train_videos"]) == (1, NUM_TRAIN - 1)
    assert "unusable video, replaced" not in (output / "log.txt").read_text()


def test_a_quarantine_counts_against_the_share(data, tmp_path, output, main, capsys):
    (tmp_path / "q.txt").write_text("train5.mp4\ntrain6.mp4\n")
    cfg = write_config(tmp_path / "tiny.yaml", data_keys(data))
    message = refused(main, capsys, command(cfg, output, "DATA.QUARANTINE", tmp_path / "q.txt"))
    assert "2 of 24 training videos are missing or quarantined" in message
    assert "train5.mp4" in message
    assert "train6.mp4" in message
    assert not output.exists()
