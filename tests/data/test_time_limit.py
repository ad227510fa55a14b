"""Videos that fail are written down and fail again; a video that takes too long ends the process."""

import ctypes
import signal
import subprocess
import sys
import time

import pytest
from fakes import training_clips_of
from torch.utils.data import DataLoader, Dataset

from mgexp.data.records import VideoRecord
from mgexp.data.time_limit import TimeLimit, VideoFailure, read_failures, write_failure
from mgexp.multigrid.sampler import ClipRequest
from mgexp.video.pyav import PyavReader
from mgexp.video.reader import VideoError


def take(limit, path="a.mp4", seed=(0, 7), wait=lambda: None):
    with limit(path, seed):
        wait()


def test_quick_videos_end_nothing(tmp_path):
    limit = TimeLimit(0.5, tmp_path / "x.jsonl")
    for _ in range(3):
        take(limit)
    time.sleep(0.8)
    assert not (tmp_path / "x.jsonl").exists()


@pytest.mark.parametrize(
    ("known", "seed", "fails"),
    [
        (VideoFailure("a.mp4", (0, 7)), (0, 7), True),
        (VideoFailure("a.mp4", (0, 7)), (0, 8), False),
        (VideoFailure("a.mp4", (0, 7)), (1, 7), False),
        (VideoFailure("b.mp4", (0, 7)), (0, 7), False),
        (VideoFailure("a.mp4", None), (0, 8), False),
        (VideoFailure("a.mp4", None), None, False),
    ],
)
def test_what_failed_before_fails_at_the_same_position(known, seed, fails):
    limit = TimeLimit(10.0, known=frozenset([known]))
    if not fails:
        take(limit, seed=seed)
        return
    with pytest.raises(VideoError, match="failed in an earlier start of this run"):
        take(limit, seed=seed, wait=lambda: pytest.fail("it was opened"))


def test_failures_come_back_from_disk(tmp_path):
    wanted = [VideoFailure("a b.mp4", (3, 2**40)), VideoFailure("ü.mp4", None)]
    for one in wanted:
        write_failure(tmp_path / "x.jsonl", one)
    assert read_failures(tmp_path / "x.jsonl") == wanted
    assert read_failures(tmp_path / "none.jsonl") == []


def clips(tiny_data, opener, limit):
    records = [VideoRecord(str(tiny_data / f"train{index}.mp4"), index % 2) for index in range(6)]
    return training_clips_of(records, opener, jitter=(32, 40), limit=limit)


def test_a_clip_of_a_video_that_was_gone_for_a_moment_is_replaced_alike_later(tiny_data, tmp_path):
    def gone(path):
        if path.endswith("train3.mp4"):
            raise VideoError(path, "cannot be opened: Stale file handle")
        return PyavReader(path)

    request = ClipRequest(index=3, frames=4, crop=16, stride_range=(1, 2), seed=(0, 11))
    record = tmp_path / "x.jsonl"
    first = clips(tiny_data, gone, TimeLimit(30.0, record))[request]
    known = frozenset(read_failures(record))
    later = clips(tiny_data, PyavReader, TimeLimit(30.0, record, known))[request]
    assert later.index == first.index != 3
    assert later.frames.equal(first.frames)
    assert len(read_failures(record)) == 1


def test_where_no_video_can_be_used_nothing_is_written_so_that_all_are_tried_again(
    tiny_data, tmp_path
):
    def gone(path):
        raise VideoError(path, "cannot be opened: Stale file handle")

    request = ClipRequest(index=3, frames=4, crop=16, stride_range=(1, 2), seed=(0, 11))
    clip = clips(tiny_data, gone, TimeLimit(30.0, tmp_path / "x.jsonl"))[request]
    assert len(clip.frames) == 0
    assert not (tmp_path / "x.jsonl").exists()


class Deadlock(Dataset):
    """C code that no signal interrupts."""

    def __init__(self, limit):
        self.limit = limit

    def __len__(self):
        return 1

    def __getitem__(self, item):
        with self.limit("a.mp4", (0, 7)):
            lock, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
            libc.pthread_mutex_lock(lock)
            libc.pthread_mutex_lock(lock)
        return item


def test_a_worker_that_hangs_ends(tmp_path):
    record = tmp_path / "x.jsonl"
    loader = DataLoader(Deadlock(TimeLimit(0.5, record)), num_workers=1)
    with pytest.raises(RuntimeError, match=r"worker \(pid.* exited unexpectedly"):
        list(loader)
    assert read_failures(record) == [VideoFailure("a.mp4", None)]


SUSPENDED = """
import time
from mgexp.data.time_limit import TimeLimit
with TimeLimit(2.0)("a.mp4"):
    print("waiting", flush=True)
    time.sleep(0.5)
print("done", flush=True)
"""


def test_a_process_without_workers_ends_too():
    program = SUSPENDED.replace("0.5", "60")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stdout) == (1, "waiting\n")
    assert done.stderr.startswith("a.mp4 gave no frames")


def test_a_run_that_is_suspended_takes_no_longer_for_that():
    arguments = [sys.executable, "-c", SUSPENDED]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep(2.5)
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=60)[0] == "done\n"
    assert process.returncode == 0
