"""Names and locks of run folders: the witness of a lock is a real process that is killed."""

import os
import signal
import subprocess
import sys

import pytest

from mgexp.errors import InputError
from mgexp.run.folder import RunDir, RunsDir, find_row_folders, find_runs


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


def test_runs_have_folders_of_their_own_in_one_for_many(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for own in ("quickstart/long/seed1", "smoke/x/long/seed1", "sweeps/a/runs/all/x/seed1"):
        found = RunDir(tmp_path / "runs" / own).tensorboard_in(tmp_path / "all")
        assert found == tmp_path / "all" / own
    elsewhere = RunDir(tmp_path / "mine").tensorboard_in(tmp_path / "all")
    assert elsewhere == (tmp_path / "all").joinpath(*(tmp_path / "mine").resolve().parts[1:])


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


def test_a_lock_names_its_holder_and_dies_with_it(tmp_path):
    arguments = [sys.executable, "-c", HOLDER, str(tmp_path)]
    holder = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    child = int(holder.stdout.readline())
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
