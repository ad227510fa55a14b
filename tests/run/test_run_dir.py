"""Files survive a kill: the witness is a real process that is killed, or bytes cut by hand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from mgexp.errors import InputError
from mgexp.run.files import (
    append_jsonl,
    atomic_file,
    atomic_write_text,
    cut_jsonl,
    read_json,
    read_jsonl,
    write_json,
)
from mgexp.run.folder import RunDir, RunsDir, find_row_folders, find_runs


def test_file_names_are_those_of_the_contract(tmp_path):
    run = RunDir(tmp_path)
    names = {
        run.config_yaml: "config.yaml",
        run.environment_json: "environment.json",
        run.schedule_csv: "schedule.csv",
        run.metrics_jsonl: "metrics.jsonl",
        run.evaluations_jsonl: "evaluations.jsonl",
        run.dataset_json: "dataset.json",
        run.log_txt: "log.txt",
        run.checkpoints: "checkpoints",
        run.result_json: "result.json",
        run.lock: "lock",
    }
    assert {path: tmp_path / name for path, name in names.items()} == {path: path for path in names}
    assert RunsDir(tmp_path).report_md == tmp_path / "report.md"
    runs = RunsDir(tmp_path)
    assert runs.report_html == tmp_path / "report.html"
    assert runs.figure("accuracy", "png") == tmp_path / "figures" / "accuracy.png"
    assert runs.stored_jsonl == tmp_path / "runs.jsonl"


def test_checkpoint_steps_are_ascending_and_ignore_other_files(tmp_path):
    run = RunDir(tmp_path)
    run.checkpoints.mkdir()
    for step in (200, 30, 1_000_000_000):
        run.checkpoint(step).touch()
    (run.checkpoints / ".step_00000040.pt.7.tmp").touch()
    (run.checkpoints / "best.pt").touch()
    assert run.checkpoint_steps() == (30, 200, 1_000_000_000)


def test_runs_are_found_by_row_and_seed(tmp_path):
    for place in ("q/long/seed10", "q/long/seed2", "q/base/seed1", "q/notes", "one"):
        (tmp_path / place).mkdir(parents=True)
    for place in ("q/long/seed10", "q/long/seed2", "q/base/seed1", "one"):
        (tmp_path / place / "config.yaml").touch()
    rows = [(row, seed) for row, seed, _ in RunsDir(tmp_path / "q").runs()]
    assert rows == [("base", 1), ("long", 2), ("long", 10)]
    assert find_runs(tmp_path)[0].root == tmp_path / "one"
    assert len(find_runs(tmp_path)) == 4
    assert find_row_folders(tmp_path) == (RunsDir(tmp_path / "q"),)
    assert find_row_folders(tmp_path / "q" / "long") == ()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file.txt"
    atomic_write_text(path, "old")
    with pytest.raises(RuntimeError), atomic_file(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]


def test_a_new_file_appears_only_when_it_is_complete(tmp_path):
    path = tmp_path / "file.txt"
    with atomic_file(path) as file:
        file.write(b"new")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"new"


def test_json_lines_are_plain_lines(tmp_path):
    path = tmp_path / "lines.jsonl"
    append_jsonl(path, {"step": 1, "loss": 0.5})
    append_jsonl(path, {"step": 2, "loss": None})
    assert path.read_text() == '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": null}\n'
    assert read_jsonl(path) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": None}]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_json_is_an_error_and_leaves_no_trace(tmp_path, value):
    path = tmp_path / "lines.jsonl"
    with pytest.raises(ValueError, match="not JSON compliant"):
        append_jsonl(path, {"loss": value})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"loss": value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("torn", ['{"step": 3, "lo', '{"step": 3}', "\udcff"])
def test_only_a_torn_last_line_is_left_out(tmp_path, torn):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n' + torn.encode(errors="surrogateescape"))
    assert read_jsonl(path) == [{"step": 1}, {"step": 2}]


def test_a_broken_line_inside_is_named(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(InputError, match="line 2: not JSON"):
        read_jsonl(path)


def test_no_file_has_no_lines(tmp_path):
    assert read_jsonl(tmp_path / "none.jsonl") == []


def test_cut_drops_what_is_not_kept_and_the_torn_line(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"ste')
    cut_jsonl(path, lambda record: record["step"] < 3)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_a_file_that_holds_no_json_object_is_bad_input(tmp_path, text):
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"result\.json"):
        read_json(path)


HOLDER = """
import os, sys, time
from pathlib import Path
from mgexp.run.folder import RunDir
with RunDir(Path(sys.argv[1])).locked():
    child = os.fork()  # as a loader worker, which outlives its parent for some seconds
    if child:
        print(child, flush=True)
    time.sleep(60)
"""


def hold(folder):
    """A process that holds the lock of a run folder, and its forked child."""
    arguments = [sys.executable, "-c", HOLDER, str(folder)]
    holder = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    return holder, int(holder.stdout.readline())


def test_a_lock_names_its_holder_and_dies_with_it(tmp_path):
    holder, child = hold(tmp_path)
    try:
        message = f"in use by process {holder.pid} on "
        with pytest.raises(InputError, match=message), RunDir(tmp_path).locked():
            pass
        assert holder.poll() is None
        holder.kill()
        holder.wait()
        os.kill(child, 0)  # still there
        with RunDir(tmp_path).locked():
            assert RunDir(tmp_path).lock.read_text().split()[0] == str(os.getpid())
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
        os.kill(child, signal.SIGKILL)
    assert RunDir(tmp_path).lock.read_text() == ""


def test_locking_clears_what_a_killed_writer_left(tmp_path):
    run = RunDir(tmp_path)
    run.checkpoints.mkdir()
    leftovers = (run.checkpoints / ".step_00000040.pt.7.tmp", tmp_path / ".result.json.7.tmp")
    for leftover in leftovers:
        leftover.write_text("half")
    with run.locked():
        assert not any(leftover.exists() for leftover in leftovers)


WRITER = """
import sys
from pathlib import Path
from mgexp.run.files import atomic_write_text
path, number = Path(sys.argv[1]), 0
while True:
    atomic_write_text(path, f"{number} " * 200_000)
    number += 1
"""


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    path = tmp_path / "big.txt"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
    deadline = time.monotonic() + 30
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    writer.kill()
    writer.wait()
    words = path.read_text().split()
    assert len(words) == 200_000
    assert len(set(words)) == 1
