"""Disks that are full or read-only, and folders in use: one message, and nothing good is lost."""

import os
import shutil
import signal

import pytest
from fault_runs import fill, num_lines, small_disk, started, temporary_files
from run_files import (
    OFTEN,
    assert_bit_identical,
    assert_same,
    contents,
    losses,
    read_lines,
    stop_in,
    torchrun,
)
from tiny import command

from mgexp.run.folder import RunDir
from mgexp.run.torch_file import check_whole

pytestmark = pytest.mark.slow


def test_no_room_for_a_checkpoint(finished_run, cfg, main, tmp_path):
    with small_disk(tmp_path / "disk", 20_000) as disk:
        output = disk / "run"
        with started(command(cfg, output, *OFTEN), tmp_path) as run:
            run.until(lambda: RunDir(output).checkpoint_steps())
            ballast = fill(disk, left_kilobytes=60)
            assert run.ends() == 1
            (message,) = run.messages
        steps = RunDir(output).checkpoint_steps()
        for said in (".pt ", "No space left on device", f"continues after step {steps[-1]}"):
            assert said in message
        for step in steps:
            check_whole(RunDir(output).checkpoint(step))
        assert temporary_files(output) == []
        ballast.unlink()
        assert main(command(cfg, output, *OFTEN)) == 0
        assert_same(output, finished_run)


def test_no_room_for_a_file_of_lines(finished_run, cfg, output, main, tmp_path):
    """/dev/full takes the place of the file."""
    metrics = output / "metrics.jsonl"
    with started(command(cfg, output), tmp_path) as run:
        run.until(lambda: num_lines(metrics) >= 2)
        link = output / "link"
        link.symlink_to("/dev/full")
        link.replace(metrics)
        assert run.ends() == 1
        (message,) = run.messages
    for said in ("metrics.jsonl", "No space left on device", "begins at step 0"):
        assert said in message
    metrics.unlink()
    assert main(command(cfg, output)) == 0
    assert_bit_identical(output, finished_run)


def without_privileges():
    """A command under which root may write only where anybody in its place may."""
    if os.getuid() != 0:
        return ()
    if not shutil.which("setpriv"):
        pytest.skip("root may write anywhere, and setpriv is not here to change that")
    return ("setpriv", "--inh-caps=-all", "--bounding-set=-all")


@pytest.mark.parametrize("place", ["run", "run/checkpoints"])
def test_a_folder_that_is_read_only(place, cfg, output, tmp_path):
    closed = tmp_path / place
    closed.mkdir(parents=True)
    closed.chmod(0o555)
    try:
        with started(command(cfg, output), tmp_path, before=without_privileges()) as run:
            assert run.ends() == 2
            (message,) = [line for line in run.said.splitlines() if "Permission denied" in line]
    finally:
        closed.chmod(0o755)
    assert str(closed) in message
    assert contents(output) == {}


def test_two_runs_on_one_folder(cfg, output, main, tmp_path, capsys):
    long = ("SOLVER.MAX_EPOCH", 16)
    with started(command(cfg, output, *long), tmp_path) as run:
        run.until(lambda: num_lines(output / "metrics.jsonl") >= 1)
        assert main(command(cfg, output, *long)) == 2
        assert run.ends() == 0
    assert f"process {run.process.pid} on {os.uname().nodename}" in capsys.readouterr().err


def test_damage_to_the_last_checkpoint(finished_run, cfg, output, main, tmp_path, capsys):
    with started(command(cfg, output, *OFTEN), tmp_path) as run:
        run.until(lambda: num_lines(output / "metrics.jsonl") >= 6)
        run.signal(signal.SIGKILL)
        run.ends()
    earlier, last = RunDir(output).checkpoint_steps()[-2:]
    os.truncate(RunDir(output).checkpoint(last), 50_000)
    assert main(command(cfg, output)) == 0
    assert f"resuming after step {earlier} of 10" in capsys.readouterr().err
    assert RunDir(output).damaged_checkpoint(last).stat().st_size == 50_000
    assert_same(output, finished_run)
    starts = read_lines(output / "starts.jsonl")
    assert starts[-1]["after_step"] == earlier


def test_two_processes_go_on_after_the_same_checkpoint(cfg, output, main):
    """The last one, of one process, is damaged: the first process chooses, the other follows."""
    stop_in(3, main, command(cfg, output, *OFTEN))
    run = RunDir(output)
    earlier, last = run.checkpoint_steps()
    os.truncate(run.checkpoint(last), 50_000)
    torchrun(command(cfg, output))
    assert read_lines(output / "starts.jsonl")[-1]["after_step"] == earlier
    assert [step for step, _ in losses(output)] == list(range(10))
