"""Videos that take too long: given up, written down, and given up again."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from torch.utils.data import DataLoader, Dataset

from mgexp.data.clips import TrainingClips
from mgexp.data.records import VideoRecord
from mgexp.data.time_limit import TimeLimit, VideoFailure, read_failures, write_failure
from mgexp.multigrid.sampler import ClipRequest
from mgexp.run.remote import FETCHING
from mgexp.video.pyav import PyavReader
from mgexp.video.reader import VideoError


def take(limit, path="a.mp4", seed=(0, 7), wait=lambda: time.sleep(20)):
    with limit(path, seed):
        wait()


def test_what_takes_too_long_is_a_video_that_failed(tmp_path):
    begin = time.monotonic()
    with pytest.raises(VideoError, match=r"a\.mp4: gave no frames in 0\.5 s \(DATA\.VIDEO_TIMEOUT"):
        take(TimeLimit(0.5, tmp_path / "x.jsonl"))
    assert time.monotonic() - begin < 10


def test_a_pipe_that_nobody_writes_into_is_given_up(tmp_path):
    """The wait is in the system, inside the decoder, which tells of it as an error of its own."""
    os.mkfifo(tmp_path / "a.mp4")

    def wait():
        with PyavReader(str(tmp_path / "a.mp4")):
            pass

    with pytest.raises(VideoError, match=r"gave no frames in 0\.5 s"):
        take(TimeLimit(0.5), wait=wait)


def test_the_copy_of_a_remote_file_does_not_count():
    """One second of copying, then the video hangs."""

    def wait():
        FETCHING.set()
        time.sleep(1.0)
        FETCHING.clear()
        copied.append(True)
        time.sleep(20)

    copied = []
    with pytest.raises(VideoError, match=r"gave no frames in 0\.5 s"):
        take(TimeLimit(0.5), wait=wait)
    assert copied == [True]


def test_what_is_quick_is_let_be(tmp_path):
    limit = TimeLimit(0.5, tmp_path / "x.jsonl")
    for _ in range(3):
        take(limit, wait=lambda: None)
    time.sleep(0.8)  # no signal comes later
    assert not (tmp_path / "x.jsonl").exists()


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_another_fault_is_told_as_it_is(seconds):
    def fail():
        raise VideoError("a.mp4", "is cut short")

    with pytest.raises(VideoError, match="is cut short"):
        take(TimeLimit(seconds), wait=fail)


def test_no_limit_is_none_and_neither_is_one_in_a_thread():
    take(TimeLimit(), wait=lambda: time.sleep(0.01))
    done = []
    thread = threading.Thread(
        target=lambda: done.append(take(TimeLimit(0.1), wait=lambda: time.sleep(0.6)))
    )
    thread.start()
    thread.join()
    assert done == [None]


@pytest.mark.parametrize(
    ("known", "seed", "fails"),
    [
        (VideoFailure("a.mp4", (0, 7)), (0, 7), True),
        (VideoFailure("a.mp4", (0, 7)), (0, 8), False),
        (VideoFailure("a.mp4", (0, 7)), (1, 7), False),
        (VideoFailure("b.mp4", (0, 7)), (0, 7), False),
        (VideoFailure("a.mp4", None), (0, 8), True),
    ],
)
def test_what_hung_before_is_left_out_at_the_same_place(known, seed, fails):
    limit = TimeLimit(10.0, known=frozenset([known]))
    if not fails:
        take(limit, seed=seed, wait=lambda: None)
        return
    with pytest.raises(VideoError, match="failed in an earlier start of this run"):
        take(limit, seed=seed, wait=lambda: pytest.fail("it was opened"))


def test_time_outs_come_back_from_disk(tmp_path):
    wanted = [VideoFailure("a b.mp4", (3, 2**40)), VideoFailure("ü.mp4", None)]
    for one in wanted:
        write_failure(tmp_path / "x.jsonl", one)
    assert read_failures(tmp_path / "x.jsonl") == wanted
    assert read_failures(tmp_path / "none.jsonl") == []


@contextmanager
def hang_at_train3(path):
    if path.endswith("train3.mp4"):
        time.sleep(20)
    with PyavReader(path) as reader:
        yield reader


def clips(tiny_data, opener, limit):
    records = [VideoRecord(str(tiny_data / f"train{index}.mp4"), index % 2) for index in range(6)]
    return TrainingClips(
        records,
        target_fps=30.0,
        jitter=(32, 40),
        full_crop=32,
        inverse_uniform=False,
        flip=False,
        opener=opener,
        limit=limit,
    )


def test_a_clip_is_replaced_alike_now_and_in_a_later_start(tiny_data, tmp_path):
    """In the later start the video would decode."""
    request = ClipRequest(index=3, frames=4, crop=16, stride_range=(1, 2), seed=(0, 11))
    record = tmp_path / "x.jsonl"
    first = clips(tiny_data, hang_at_train3, TimeLimit(0.5, record))[request]
    known = frozenset(read_failures(record))
    assert known == {VideoFailure(str(tiny_data / "train3.mp4"), (0, 11))}
    later = clips(tiny_data, PyavReader, TimeLimit(0.5, record, known))[request]
    assert later.index == first.index != 3
    assert later.frames.equal(first.frames)
    assert [index for index, _ in later.unusable] == [index for index, _ in first.unusable] == [3]


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


def test_a_worker_that_cannot_be_interrupted_ends(tmp_path):
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


def test_a_run_that_is_suspended_takes_no_longer_for_that():
    arguments = [sys.executable, "-c", SUSPENDED]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep(2.5)
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=60)[0] == "done\n"
    assert process.returncode == 0
