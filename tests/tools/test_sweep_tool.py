"""tools/sweep.py on this machine: preview, freezing, a second call, states, cancel, errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from fault_runs import num_lines, wait_for
from run_files import assert_bit_identical, read_lines
from tiny import TOOL, data_keys, load_tool, write_config

from mgexp.config import load
from mgexp.launch.sweep_state import RunState
from mgexp.run.environment import num_cores

SWEEP = TOOL.with_name("sweep.py")
GRID = ("--grid", "SOLVER.BASE_LR=0.005,0.004")


sweep = load_tool("sweep").main


@pytest.fixture
def rows(tiny_data, tmp_path, monkeypatch):
    folder = tmp_path / "experiments" / "group"
    folder.mkdir(parents=True)
    monkeypatch.setattr(load, "EXPERIMENTS", folder.parent)
    first = write_config(folder / "baseline.yaml", data_keys(tiny_data))
    return [str(first), str(write_config(folder / "other.yaml", data_keys(tiny_data)))]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "sweep"


def printed(capsys):
    return json.loads(capsys.readouterr().out)


def test_a_preview_says_what_would_be_submitted_and_writes_nothing(rows, folder, capsys):
    words = [*rows, "--seeds", "2", *GRID, "--output", str(folder), "--dry-run"]
    assert sweep(words) == 0
    lines = capsys.readouterr().out.splitlines()
    run = folder / "runs/SOLVER.BASE_LR=0.005/group/baseline/seed0"
    assert lines[1].split()[2:] == ["SOLVER.BASE_LR", "0.005", str(run), "missing"]
    assert lines[-1].startswith("8 of 8 ")
    assert not folder.exists()


def test_a_repeated_call_remembers_a_missed_expectation(rows, folder, monkeypatch):
    tool = load_tool("sweep")
    monkeypatch.setattr(tool, "states", lambda _, names: [RunState(one, "missed") for one in names])
    assert tool.main([*rows, "--output", str(folder)]) == 3


def test_all_problems_of_all_rows_are_one_message(rows, folder, capsys):
    other = Path(rows[1])
    content = yaml.safe_load(other.read_text())
    content["SOLVER"]["MOMENTUN"] = 0.5
    other.write_text(yaml.safe_dump(content))
    grid = ("--grid", "TRAIN.BATCH_SIZE=4,many", "--partition", "p", "--seeds", "x")
    assert sweep([*rows, *grid, "--output", str(folder), "DATA.NUM_FRAMES", "10"]) == 2
    message = capsys.readouterr().err
    assert "--partition" in message and "--seeds x" in message
    assert "TRAIN.BATCH_SIZE=4/group/other, TRAIN.BATCH_SIZE=many/group/other: " in message
    assert "TRAIN.BATCH_SIZE=many/group/baseline, TRAIN.BATCH_SIZE=many/group/other: " in message
    assert message.count("MOMENTUN") == 1
    assert "  - 10 frames" in message  # of every run, told once without names
    assert not folder.exists()


def test_bad_calls(rows, folder):
    output = ("--output", str(folder))
    for words in (["SOLVER.BASE_LR", "1", *output], [rows[0], rows[0], *output], ["cancel", "no"]):
        assert sweep(words) == 2
    assert not folder.exists()


@pytest.mark.slow
def test_a_second_call_runs_what_is_missing_with_the_code_of_the_first(
    rows, folder, finished_run, capfd, tmp_path
):
    """A call with another configuration of the same run is refused."""
    first = [rows[0], "--grid", "SOLVER.BASE_LR=0.005", "--output", str(folder)]
    assert sweep(first) == 0
    assert "step 10/10" in capfd.readouterr().err
    run = folder / "runs/SOLVER.BASE_LR=0.005/group/baseline/seed0"
    assert_bit_identical(run, finished_run)
    assert sweep([*first, "SOLVER.MOMENTUM", "0.5"]) == 2
    assert f"SOLVER.MOMENTUM: {folder} has 0.9, this call 0.5" in capfd.readouterr().err
    # The frozen YAML would keep its value of this key too, although it changes no result.
    assert sweep([*first, "DATA_LOADER.NUM_WORKERS", "1"]) == 2
    assert f"DATA_LOADER.NUM_WORKERS: {folder} has 0, this call 1" in capfd.readouterr().err
    marked = folder / "code/mgexp/__init__.py"
    marked.write_text(marked.read_text() + "\nimport sys\nprint('the copy', file=sys.stderr)\n")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    words = [rows[0], *GRID, "--output", str(folder)]
    assert sweep(words) == 0
    assert "the copy" in capfd.readouterr().err
    after = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert {path.name for path in after if after[path] != before.get(path)} <= {"lock"}
    assert json.loads((folder / "sweep.json").read_text())["runs"] == [
        f"SOLVER.BASE_LR={rate}/group/baseline/seed0" for rate in ("0.005", "0.004")
    ]
    assert sweep([*words, "--dry-run"]) == 0
    assert capfd.readouterr().out.splitlines()[-1].startswith("0 of 2 ")
    assert sweep(["status", str(folder), "--json"]) == 0
    found = printed(capfd)
    assert [one["state"] for one in found] == ["finished"] * 2
    assert all(one["step"] == one["total"] == 10 for one in found)
    experiments = tmp_path / "experiments"
    record = load_tool("collect").collect(folder / "runs", experiments)
    # The last one has the table of values.
    assert [path.parent.name for path in record["reports"]] == ["group", "group", "runs"]
    assert record["added"] == [run]  # the grid's first value is the row's
    assert len(record["not_rows"]) == 1


@pytest.mark.slow
def test_cancel_saves_and_the_next_call_goes_on(rows, folder, finished_run, capfd, monkeypatch):
    monkeypatch.undo()  # in a process of its own, the rows lie outside the repository
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    words = [rows[0], "--output", str(folder), "--launcher", "local"]
    process = subprocess.Popen([sys.executable, str(SWEEP), *words, "--seeds", "2"], text=True)
    run = folder / "runs/all/baseline/seed0"
    wait_for(lambda: num_lines(run / "metrics.jsonl") >= 1, "step")
    assert sweep(["cancel", str(folder)]) == 0
    assert capfd.readouterr().out.splitlines()[1:] == ["all/baseline/seed0"]
    assert process.wait(200) == 4
    assert sweep(["status", str(folder), "--json"]) == 0
    assert [one["state"] for one in printed(capfd)] == ["stopped", "missing"]
    assert sweep([*words, "--seeds", "2", "--parallel", "2"]) == 0
    assert_bit_identical(run, finished_run)
    share = max(1, num_cores() // 2)
    second = (run.with_name("seed1") / "log.txt").read_text()
    assert f"{share} thread" in second
    assert len(read_lines(run / "starts.jsonl")) == 2
