"""Stores in shards: the same frames to the bit, every kill survived, damage made good, videos that are gone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stores import order, store_in, write_smooth

from mgexp.run.files import json_line, write_json
from mgexp.video import store_pack
from mgexp.video.pyav import PyavReader
from mgexp.video.reader import VideoError
from mgexp.video.shards import Part
from mgexp.video.store import Copy, Stamp, StoreDir, StoredVideo, StoreIndex
from mgexp.video.store_fill import Filled, fill_store

NAMES = [f"class{number % 2}/{number}.mp4" for number in range(5)]
LEVELS = (64, 32)
SHARD_BYTES = 12_000
"""Two or three copies."""


@pytest.fixture(scope="module")
def originals(tmp_path_factory) -> Path:
    """Five videos, and a store of their copies as files; read only."""
    folder = tmp_path_factory.mktemp("originals")
    for number, name in enumerate(NAMES):
        write_smooth(folder / "videos" / name, ticks=[512 * tick for tick in range(3 + number)])
    fill_store(store_in(folder), order(folder / "videos"), NAMES, 1, progress=False)
    return folder


@pytest.fixture
def folder(originals, tmp_path) -> Path:
    """A copy of it."""
    shutil.copytree(originals, tmp_path, dirs_exist_ok=True)
    return tmp_path


def pack(folder, names=NAMES, **changes) -> Filled:
    asked = replace(order(folder / "videos"), **{"shard_bytes": SHARD_BYTES, **changes})
    return fill_store(store_in(folder), asked, names, 1, progress=False)


def files(folder) -> list[str]:
    """The copies that are files of their own."""
    store = folder / "store"
    return sorted(str(path.relative_to(store)) for path in store.rglob("*.mp4"))


def shards(folder) -> list[str]:
    store = folder / "store"
    return sorted(str(path.relative_to(store)) for path in store.rglob("*.tar"))


def frames(folder, store=None) -> list[np.ndarray]:
    """Frames of every video at every level."""
    index = StoreIndex(StoreDir(store or folder / "store"), folder / "videos", PyavReader)
    found = []
    for name in NAMES:
        with index(str(folder / "videos" / name)) as video:
            found += [video.frames_at([0.0, 0.05, 9.0], level).rgb() for level in LEVELS]
    return found


def assert_same(folder, originals) -> None:
    for one, other in zip(frames(folder), frames(folder, originals / "store"), strict=True):
        assert np.array_equal(one, other)


def test_a_store_of_files_becomes_one_of_shards_with_the_same_frames(folder, originals):
    assert pack(folder) == Filled(0, 5, ())
    assert files(folder) == []
    assert len(shards(folder)) >= 3
    assert_same(folder, originals)
    assert len(store_in(folder).manifest_jsonl.read_text().splitlines()) == 5


def test_a_new_store_is_filled_into_shards_at_once(originals, tmp_path):
    shutil.copytree(originals / "videos", tmp_path / "videos")
    for name in NAMES:
        shutil.copystat(originals / "videos" / name, tmp_path / "videos" / name)
    assert pack(tmp_path) == Filled(5, 0, ())
    assert files(tmp_path) == []
    assert_same(tmp_path, originals)


def test_nothing_is_done_twice(folder):
    pack(folder)
    before = {name: (folder / "store" / name).stat().st_mtime_ns for name in shards(folder)}
    assert pack(folder) == Filled(0, 5, ())
    assert {name: (folder / "store" / name).stat().st_mtime_ns for name in before} == before
    assert shards(folder) == sorted(before)


def test_a_video_that_changed_gets_a_new_place_and_a_level_that_is_added_too(folder):
    pack(folder)
    write_smooth(folder / "videos" / NAMES[2], ticks=[0, 512])
    assert pack(folder) == Filled(1, 4, ())
    assert store_in(folder).read()[NAMES[2]].num_frames == 2
    assert pack(folder, levels=(48,)) == Filled(5, 0, ())
    assert set(store_in(folder).read()[NAMES[2]].levels) == {32, 48, 64}
    assert files(folder) == []


def test_a_shard_whose_copies_were_all_replaced_is_deleted(folder):
    pack(folder, shard_bytes=10**9)
    assert shards(folder) == ["32/000000.tar", "64/000000.tar"]
    for name in NAMES:
        os.utime(folder / "videos" / name, (1, 1))
    pack(folder, shard_bytes=10**9)
    assert shards(folder) == ["32/000001.tar", "64/000001.tar"]


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("moment", ["write_shard", "append_jsonl", "sync_file"])
@pytest.mark.parametrize("call", [1, 2])
def test_a_kill_at_any_moment_leaves_a_whole_store(folder, originals, monkeypatch, moment, call):
    """Before and behind each kind of write. Behind sync_file, only the files are still to be deleted."""
    original, calls = getattr(store_pack, moment), []

    def kill(*arguments):
        calls.append(arguments)
        if len(calls) == call and moment != "sync_file":
            raise Killed
        found = original(*arguments)
        if len(calls) == call:
            raise Killed
        return found

    monkeypatch.setattr(store_pack, moment, kill)
    with pytest.raises(Killed):
        pack(folder)
    monkeypatch.undo()
    assert_same(folder, originals)
    assert pack(folder) == Filled(0, 5, ())
    assert files(folder) == []
    assert_same(folder, originals)


FILL = """
import sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from stores import order, store_in
from mgexp.video.store_fill import fill_store
if __name__ == "__main__":
    folder = Path(sys.argv[2])
    names = [f"{number}.mp4" for number in range(12)]
    asked = replace(order(folder / "videos"), shard_bytes=int(sys.argv[3]))
    fill_store(store_in(folder), asked, names, 1, progress=False)
"""


@pytest.mark.slow
def test_kill_9_while_shards_are_written_goes_on(tmp_path):
    names = [f"{number}.mp4" for number in range(12)]
    for name in names:
        write_smooth(tmp_path / "videos" / name, ticks=[512 * n for n in range(100)])
    script = tmp_path / "fill.py"
    script.write_text(FILL)
    arguments = [sys.executable, str(script), str(Path(__file__).parent), str(tmp_path), "1"]
    process = subprocess.Popen(
        arguments, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    deadline = time.monotonic() + 60
    while not list((tmp_path / "store").glob("64/000002.tar")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    num_done = len(store_in(tmp_path).read())
    assert 0 < num_done < 12
    asked = replace(order(tmp_path / "videos"), shard_bytes=1)
    filled = fill_store(store_in(tmp_path), asked, names, 1, progress=False)
    assert (filled.num_copied, filled.num_kept) == (12 - num_done, num_done)
    assert files(tmp_path) == []
    assert len(shards(tmp_path)) == 24


def damage(folder) -> None:
    """Change a byte of the last copy in the first shard of level 64."""
    copies = [video.levels[64] for video in store_in(folder).read().values()]
    last = max((one for one in copies if one.part.shard == 0), key=lambda one: one.part.offset)
    shard = store_in(folder).shard(64, 0)
    content = bytearray(shard.read_bytes())
    content[last.part.offset + last.size_bytes // 2] ^= 255
    shard.write_bytes(content)


def test_only_verify_reads_the_copies_and_makes_the_damaged_one_again(folder, originals):
    pack(folder)
    damage(folder)
    assert pack(folder) == Filled(0, 5, ())
    assert pack(folder, verify=True) == Filled(1, 4, ())
    assert pack(folder, verify=True) == Filled(0, 5, ())
    assert_same(folder, originals)


def test_a_shard_that_is_gone_or_short_is_made_again(folder, originals):
    pack(folder)
    gone, short = (folder / "store" / name for name in ("32/000000.tar", "64/000000.tar"))
    gone.unlink()
    short.write_bytes(short.read_bytes()[:1000])
    assert pack(folder).num_copied >= 2
    assert_same(folder, originals)


def test_videos_that_are_gone_are_read_from_their_copies_and_stay_in_the_store(folder, originals):
    pack(folder)
    expected = frames(folder)
    shutil.rmtree(folder / "videos")
    for one, other in zip(frames(folder), expected, strict=True):
        assert np.array_equal(one, other)
    assert pack(folder) == Filled(0, 5, ())
    index = StoreIndex(store_in(folder), folder / "videos", PyavReader)
    with (
        index(str(folder / "videos" / NAMES[0])) as video,
        pytest.raises(VideoError, match="is gone, and its copies have fewer pixels"),
    ):
        video.frames_at([0.0], 90)


@pytest.mark.slow
@pytest.mark.alone
def test_an_index_of_100000_videos_opens_in_seconds(tmp_path):
    """Measured: 3.2 s of one core. The limit is far above, since other programs may run."""
    store = StoreDir(tmp_path)
    write_json(store.settings_json, {})
    part = Part(7, 123456789, 1234567890)
    levels = {level: Copy(level, level, 10**6, part) for level in (320, 224, 160)}
    video = StoredVideo("class/@.mp4", Stamp(10**7, 10**18), 300, 10.0, 340, 340, levels)
    line = json_line(video.line())
    with store.manifest_jsonl.open("w") as file:
        file.writelines(line.replace("@", str(number)) for number in range(100_000))
    start = time.process_time()
    StoreIndex(store, tmp_path, PyavReader)
    assert len(store.entries()) == 100_000
    assert time.process_time() - start < 10
