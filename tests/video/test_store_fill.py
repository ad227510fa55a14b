"""Filling a store: what is done, kept, done again, refused, and what a kill or a full disk leaves."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import bad_copies
import pytest
from stores import NotedOpener, order, store_in, write_smooth

from mgexp.errors import InputError
from mgexp.video import store_encode, store_fill
from mgexp.video.store import StoreIndex, stamp_of
from mgexp.video.store_fill import Order, fill_store

NAMES = [f"{number}.mp4" for number in range(5)]
FILL = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from stores import order, store_in
from mgexp.video.store_fill import fill_store
if __name__ == "__main__":
    folder = Path(sys.argv[2])
    names = [f"{number}.mp4" for number in range(int(sys.argv[3]))]
    fill_store(store_in(folder), order(folder / "videos"), names, 2, progress=False)
"""


@pytest.fixture
def videos(tmp_path):
    """Five short videos."""
    for name in NAMES:
        write_smooth(tmp_path / "videos" / name, ticks=[0, 512, 1024])
    return tmp_path / "videos"


def fill(folder, names=NAMES, processes=1, **changes):
    asked = replace(order(folder / "videos"), **changes)
    return fill_store(store_in(folder), asked, names, processes, progress=False)


def copies(folder):
    return sorted(path.relative_to(folder / "store") for path in (folder / "store").rglob("*.mp4"))


def times_of_change(folder):
    return {path: (folder / "store" / path).stat().st_mtime_ns for path in copies(folder)}


@pytest.mark.parametrize("processes", [1, 2])
def test_every_video_has_a_copy_at_every_level_and_a_line(processes, videos, tmp_path):
    assert fill(tmp_path, processes=processes) == store_fill.Filled(5, 0, ())
    assert [str(path) for path in copies(tmp_path)] == [
        f"{level}/{name}" for level in (32, 64) for name in NAMES
    ]
    manifest = store_in(tmp_path).read()
    assert sorted(manifest) == NAMES
    assert all(set(video.levels) == {32, 64} for video in manifest.values())


@pytest.mark.parametrize("change", ["size", "time"])
def test_a_video_that_changed_is_done_again(videos, tmp_path, change):
    fill(tmp_path)
    if change == "size":
        write_smooth(videos / "2.mp4", ticks=[0, 512, 1024, 1536])
    else:
        os.utime(videos / "2.mp4", (1, 1))
    assert fill(tmp_path) == store_fill.Filled(1, 4, ())
    stamp = store_in(tmp_path).read()["2.mp4"].stamp
    assert stamp == stamp_of(str(videos / "2.mp4"))


def test_a_manifest_of_an_older_version_with_sums_of_the_videos_is_read(videos, tmp_path):
    fill(tmp_path)
    manifest = store_in(tmp_path).manifest_jsonl
    text = manifest.read_text().replace('"mtime_ns"', '"sha256": "ab", "mtime_ns"')
    manifest.write_text(text.replace('"num_frames"', '"quarter_turns": 0, "num_frames"'))
    assert fill(tmp_path) == store_fill.Filled(0, 5, ())


def test_a_copy_that_is_gone_is_made_again(videos, tmp_path):
    fill(tmp_path)
    store_in(tmp_path).copy(32, "3.mp4").unlink()
    assert fill(tmp_path) == store_fill.Filled(1, 4, ())
    assert len(copies(tmp_path)) == 10


def test_a_level_that_is_added_keeps_the_others(videos, tmp_path):
    fill(tmp_path)
    before = times_of_change(tmp_path)
    assert fill(tmp_path, levels=(64, 48)).num_copied == 5
    assert set(store_in(tmp_path).read()["0.mp4"].levels) == {32, 48, 64}
    after = times_of_change(tmp_path)
    assert {path: after[path] for path in before} == before
    assert len(after) == 15


def test_a_lost_copy_at_another_level_is_forgotten(videos, tmp_path):
    fill(tmp_path)
    store_in(tmp_path).copy(32, "3.mp4").unlink()
    before = times_of_change(tmp_path)
    assert fill(tmp_path, levels=(64,)) == store_fill.Filled(0, 5, ())
    assert set(store_in(tmp_path).read()["3.mp4"].levels) == {64}
    assert times_of_change(tmp_path) == before


@pytest.mark.parametrize("fault", ["gone", "unreadable"])
def test_a_level_that_cannot_be_made_now_takes_no_other_copies_away(videos, tmp_path, fault):
    fill(tmp_path, levels=(64,))
    before = store_in(tmp_path).read()["2.mp4"]
    if fault == "gone":
        (videos / "2.mp4").unlink()
    else:
        state = (videos / "2.mp4").stat()
        (videos / "2.mp4").write_bytes(bytes(state.st_size))
        os.utime(videos / "2.mp4", ns=(state.st_mtime_ns, state.st_mtime_ns))
    for num_copied in (4, 0):
        filled = fill(tmp_path)
        assert (filled.num_copied, len(filled.failures)) == (num_copied, 1)
        (path, reason) = filled.failures[0]
        assert path == "2.mp4"
        assert reason.endswith("; its other copies stay")
        assert store_in(tmp_path).read()["2.mp4"] == before
        index = StoreIndex(store_in(tmp_path), videos, NotedOpener())
        with index(str(videos / "2.mp4")) as video:
            video.frames_at([0.0], 64)
        assert index.open_file == [str(store_in(tmp_path).copy(64, "2.mp4"))]


def test_a_video_that_changed_and_fails_keeps_no_old_copies(videos, tmp_path):
    fill(tmp_path)
    (videos / "2.mp4").write_bytes(b"this is no video")
    assert fill(tmp_path).num_copied == 0
    assert store_in(tmp_path).read()["2.mp4"].levels == {}
    assert not list(store_in(tmp_path).root.rglob("2.mp4"))


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_video_that_crashes_or_hangs_its_decoder_is_named_and_the_others_are_copied(
    videos, tmp_path, monkeypatch, processes
):
    monkeypatch.setattr(store_fill, "copy_video", bad_copies.copy)
    for name in ("hang.mp4", "segfault.mp4"):
        shutil.copy(videos / "0.mp4", videos / name)
    names = [*NAMES, "segfault.mp4", "hang.mp4"]
    asked = order(videos, 32)
    filled = fill_store(store_in(tmp_path), asked, names, processes, False, limit_seconds=3.0)
    assert filled.num_copied == 5
    assert dict(filled.failures) == {
        "segfault.mp4": "its process ended with signal SIGSEGV",
        "hang.mp4": "no result after 3 s",
    }
    assert store_in(tmp_path).read()["hang.mp4"].failure == "no result after 3 s"


def test_a_full_disk_in_a_process_is_no_failure_of_the_video(videos, tmp_path, monkeypatch):
    monkeypatch.setattr(store_fill, "copy_video", bad_copies.copy)
    with pytest.raises(OSError, match="No space left"):
        fill(tmp_path, ["full.mp4"], processes=2)


def test_a_pipe_is_no_video(videos, tmp_path):
    os.mkfifo(videos / "pipe.mp4")
    assert fill(tmp_path, ["pipe.mp4"]).failures == (("pipe.mp4", "is not a file"),)


def test_copies_outlive_the_folder_of_their_videos(videos, tmp_path):
    fill(tmp_path)
    shutil.rmtree(videos)
    videos.write_text("a file in the place of the folder")
    assert fill(tmp_path) == store_fill.Filled(0, 5, ())


def test_videos_that_fail_are_listed_and_tried_again(videos, tmp_path):
    (videos / "1.mp4").write_bytes(b"this is no video")
    filled = fill(tmp_path, [*NAMES, "none.mp4"])
    assert (filled.num_copied, [path for path, _ in filled.failures]) == (4, ["1.mp4", "none.mp4"])
    reasons = dict(filled.failures)
    assert "Invalid data" in reasons["1.mp4"]
    assert "No such file" in reasons["none.mp4"]
    manifest = store_in(tmp_path).read()
    assert manifest["1.mp4"].failure == reasons["1.mp4"]
    write_smooth(videos / "1.mp4", ticks=[0, 512])
    assert fill(tmp_path) == store_fill.Filled(1, 4, ())


def test_a_killed_start_goes_on(tmp_path):
    """kill -9, as early as there is a line in the manifest; long videos, so that it comes in the middle."""
    names = [f"{number}.mp4" for number in range(12)]
    for name in names:
        write_smooth(tmp_path / "videos" / name, ticks=[512 * n for n in range(400)])
    script = tmp_path / "fill.py"
    script.write_text(FILL)
    arguments = [sys.executable, str(script), os.path.dirname(__file__), str(tmp_path), "12"]  # noqa: PTH120
    process = subprocess.Popen(
        arguments, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    manifest = store_in(tmp_path).manifest_jsonl
    deadline = time.monotonic() + 60
    while not (manifest.exists() and manifest.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    num_done = len(store_in(tmp_path).read())
    assert 0 < num_done < 12
    with manifest.open("a") as file:
        file.write('{"path": "torn')
    filled = fill(tmp_path, names)
    assert (filled.num_copied, filled.num_kept) == (12 - num_done, num_done)
    assert sorted(store_in(tmp_path).read()) == sorted(names)
    assert list((tmp_path / "store").rglob(".*.tmp")) == []


def full_after(num_files):
    """An atomic_file on a disk that is full after ``num_files`` files."""
    original, written = store_encode.atomic_file, []

    @contextmanager
    def atomic_file(path):
        written.append(path)
        if len(written) > num_files:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with original(path) as file:
            yield file

    return atomic_file


def test_a_full_disk_is_one_error_and_the_store_goes_on_later(videos, tmp_path, monkeypatch):
    monkeypatch.setattr(store_encode, "atomic_file", full_after(5))
    with pytest.raises(OSError, match="No space left"):
        fill(tmp_path)
    assert len(store_in(tmp_path).read()) == 2  # two videos at two levels, and half of a third
    monkeypatch.undo()
    assert fill(tmp_path) == store_fill.Filled(3, 2, ())


@pytest.mark.parametrize("path", ["/etc/passwd", "../other.mp4", "a/../../b.mp4"])
def test_files_outside_the_root_are_refused(videos, tmp_path, path):
    with pytest.raises(InputError, match="outside the root folder"):
        fill(tmp_path, [path])
    assert not (tmp_path / "store").exists()


def test_two_videos_of_one_copy_are_refused(videos, tmp_path):
    with pytest.raises(InputError, match="would have the same copy"):
        fill(tmp_path, ["a.avi", "a.avi.mp4"])


def test_a_store_of_other_copies_is_refused(videos, tmp_path):
    fill(tmp_path)
    with pytest.raises(InputError, match="quantizer 2 there, 30 now"):
        fill(tmp_path, quantizer=30)


def test_a_folder_of_other_files_is_refused(videos, tmp_path):
    with pytest.raises(InputError, match=r"holds files but no store\.json"):
        fill_store(store_fill.StoreDir(videos), order(videos), NAMES, 1, progress=False)


def test_impossible_orders_are_refused_all_at_once(tmp_path):
    with pytest.raises(InputError) as caught:
        Order(tmp_path, (161, 8), 32)
    assert len(caught.value.problems) == 3


def test_a_store_that_is_being_filled_is_refused(videos, tmp_path):
    fill(tmp_path)
    code = (
        "import fcntl, sys, time\nfile = open(sys.argv[1], 'a+')\nfcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\ntime.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(store_in(tmp_path).lock)], stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match="another process fills"):
            fill(tmp_path)
    finally:
        holder.kill()
        holder.wait()
