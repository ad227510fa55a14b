"""tools/check_data.py from the command line to the quarantine, which counts against the share of a training."""

import json
import os
from pathlib import Path

import pytest
from run_files import read_lines
from tiny import NUM_TRAIN, data_keys, load_tool, write_config

tool = load_tool("check_data")


@pytest.fixture
def check(data, tmp_path):
    """Starts the tool on the training list, in one process; its exit code."""

    def check(*more):
        cfg = write_config(tmp_path / "check.yaml", data_keys(data))
        arguments = ["--cfg", cfg, "DATA.VAL_LIST", "", "--output", tmp_path / "check"]
        return tool.main([*map(str, arguments), "--processes", "1", *map(str, more)])

    return check


def test_faults_are_exit_code_3_and_in_the_quarantine(check, data, tmp_path, capsys):
    (data / "train5.mp4").write_bytes(b"no video" * 50)
    (data / "train7.mp4").unlink()
    assert check("--quick", "--json") == 3
    found = json.loads(capsys.readouterr().out)
    assert found["kinds"] == {"ok": 22, "missing": 1, "open_fails": 1}
    assert (found["num_videos"], found["num_unusable"], found["num_known"]) == (24, 2, 0)
    assert found["video_seconds"] == pytest.approx(22 * 0.8)
    assert Path(found["quarantine"]).read_text() == "train5.mp4\ntrain7.mp4\n"


def test_a_second_call_goes_on_with_what_is_missing_or_changed(check, data, tmp_path, capsys):
    assert check() == 0
    assert (tmp_path / "check" / "quarantine.txt").read_text() == ""
    path = tmp_path / "check" / "videos.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    assert {json.loads(line)["path"] for line in lines} == set(map(str, data.glob("train*.mp4")))
    path.write_text("".join(lines[:20]) + lines[20][:30])  # killed in its 21st line
    first = json.loads(lines[0])["path"]
    os.utime(first, (1, 1))
    capsys.readouterr()
    assert check("--json") == 0
    assert json.loads(capsys.readouterr().out)["num_known"] == 19
    assert len(read_lines(path)) == NUM_TRAIN
