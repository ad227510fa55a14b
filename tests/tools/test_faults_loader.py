"""Workers that die, videos that hang, memory that is short: a message that says which, and the run goes on."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from fault_runs import fill, num_lines, started
from run_files import OFTEN, assert_same, losses
from tiny import command, data_keys, write_config

from mgexp.run.folder import RunDir

pytestmark = pytest.mark.slow

WORKERS = ("DATA_LOADER.NUM_WORKERS", 2)
LONG = ("SOLVER.MAX_EPOCH", 16)  # so that it is not done before something is done to it


def test_a_worker_that_is_killed(cfg, output, main, tmp_path):
    with started(command(cfg, output, *OFTEN, *WORKERS, *LONG), tmp_path) as run:
        run.until(lambda: num_lines(output / "metrics.jsonl") >= 2)
        worker = run.children()[0]
        os.kill(worker, signal.SIGKILL)
        assert run.ends() == 1
        (message,) = run.messages
    assert f"worker {worker} was killed" in message or "worker ended while it" in message
    assert f"continues after step {RunDir(output).checkpoint_steps()[-1]}" in message
    assert main(command(cfg, output, *LONG)) == 0
    steps = [step for step, _ in losses(output)]
    assert steps == list(range(len(steps)))


IN_SMALL_SHARED_MEMORY = 'mount -t tmpfs -o size=4m tmpfs /dev/shm && exec "$@"'


def test_workers_without_shared_memory(cfg, output, tmp_path):
    """It is filled by another program after the start."""
    flags = "-m" if os.getuid() == 0 else "-rm"
    before = ("unshare", flags, "sh", "-c", IN_SMALL_SHARED_MEMORY, "sh")
    probe = subprocess.run([*before, "true"], check=False, capture_output=True)
    if probe.returncode:
        pytest.skip("this machine does not let a test mount a file system (unshare, mount)")
    arguments = command(cfg, output, *OFTEN, *WORKERS, *LONG)
    with started(arguments, tmp_path, before=before) as run:
        run.until(lambda: num_lines(output / "metrics.jsonl") >= 1)
        fill(Path(f"/proc/{run.process.pid}/root/dev/shm"))
        assert run.ends() == 1
        (message,) = run.messages
    assert "/dev/shm" in message


HANG = ("DATA.VIDEO_TIMEOUT_SECONDS", 5, "DATA.MAX_UNUSABLE_SHARE", 0.5)


def make_pipe(path):
    """A pipe that nobody writes into takes the place of a video: to open it never ends."""
    pipe = path.with_suffix(".pipe")
    os.mkfifo(pipe)
    pipe.replace(path)


@pytest.fixture
def own_cfg(data, tmp_path):
    return write_config(tmp_path / "tiny.yaml", data_keys(data))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_video_that_hangs_ends_the_run_which_resumes_to_the_bit(
    workers, own_cfg, data, main, tmp_path
):
    pairs = (*HANG, *OFTEN, "DATA_LOADER.NUM_WORKERS", workers)
    one, two = tmp_path / "one", tmp_path / "two"
    with started(command(own_cfg, one, *pairs), tmp_path) as run:
        run.until(lambda: num_lines(one / "metrics.jsonl") >= 1)
        good = (data / "train5.mp4").read_bytes()
        make_pipe(data / "train5.mp4")
        assert run.ends() == 1, run.said
        assert f"{data / 'train5.mp4'} gave no frames" in run.said
    assert not (one / "result.json").exists()

    (data / "train5.mp4").unlink()
    (data / "train5.mp4").write_bytes(good)
    assert main(command(own_cfg, one, *pairs)) == 0
    assert main(command(own_cfg, two, *pairs)) == 0
    assert_same(two, one)


def test_a_video_that_hangs_in_an_evaluation_is_named(own_cfg, data, output, tmp_path):
    with started(command(own_cfg, output, *HANG, *WORKERS), tmp_path) as run:
        run.until(lambda: num_lines(output / "metrics.jsonl") >= 1)
        make_pipe(data / "val3.mp4")
        assert run.ends() == 1
        (message,) = run.messages
    assert f"{data / 'val3.mp4'} gave no frames" in message


def test_a_video_that_hangs_does_not_keep_a_run_from_stopping(own_cfg, data, output, tmp_path):
    pairs = ("DATA.VIDEO_TIMEOUT_SECONDS", 0, "DATA_LOADER.NUM_WORKERS", 2)
    with started(command(own_cfg, output, *pairs), tmp_path) as run:
        run.until(lambda: num_lines(output / "metrics.jsonl") >= 1)
        for index in range(24):
            make_pipe(data / f"train{index}.mp4")
        run.until(lambda: _is_stuck(output))
        run.signal(signal.SIGTERM)
        assert run.ends(60) == 4
        assert "SIGTERM: saved after step" in run.said


def _is_stuck(output):
    before = num_lines(output / "metrics.jsonl")
    time.sleep(3)
    return num_lines(output / "metrics.jsonl") == before
