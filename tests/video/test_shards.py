"""Stores in tar files, which earlier versions made: the same frames, and damage that is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from stores import order, pack_store, store_in, write_shard, write_smooth

from mgexp.video.pyav import PyavReader
from mgexp.video.reader import VideoError
from mgexp.video.shards import Part, part_path
from mgexp.video.store import StoreIndex
from mgexp.video.store_fill import Filled, fill_store

NAMES = ["a.mp4", "folder/b c, d:e.mp4", f"{'é' * 90}.mp4", f"{'folder/' * 30}z.mp4"]


@pytest.fixture(scope="module")
def copies(tmp_path_factory) -> list[tuple[str, Path]]:
    """Four copies of a store, and the names that they get in a shard."""
    folder = tmp_path_factory.mktemp("copies")
    names = [f"{number}.mp4" for number in range(4)]
    for number, name in enumerate(names):
        ticks = [512 * tick for tick in range(4 + number)]
        write_smooth(folder / "videos" / name, ticks=ticks)
    fill_store(store_in(folder), order(folder / "videos", 64), names, 1, progress=False)
    files = [store_in(folder).copy(64, name) for name in names]
    return list(zip(NAMES, files, strict=True))


@pytest.fixture
def shard(copies, tmp_path) -> tuple[Path, list[Part]]:
    path = tmp_path / "64" / "000003.tar"
    return path, write_shard(path, 3, copies)


def path_of(shard, copies, position) -> str:
    name, file = copies[position]
    return part_path(str(shard[0]), name, shard[1][position], file.stat().st_size)


@pytest.mark.parametrize("position", range(4))
def test_frames_and_duration_are_those_of_the_file(copies, shard, position):
    times = [0.0, 0.05, 0.1]
    with (
        PyavReader(str(copies[position][1])) as file,
        PyavReader(path_of(shard, copies, position)) as part,
    ):
        assert part.duration_seconds == file.duration_seconds
        assert np.array_equal(part.frames_at(times).pixels, file.frames_at(times).pixels)


def test_a_shard_that_is_cut_short_fails_from_there_on(copies, shard):
    path, parts = shard
    content = path.read_bytes()
    path.write_bytes(content[: parts[2].offset + 100])
    path_of(shard, copies, 1)
    with pytest.raises(VideoError, match="ends before the end of"):
        path_of(shard, copies, 2)
    with pytest.raises(VideoError, match="is damaged"):
        path_of(shard, copies, 3)


def test_a_damaged_header_is_noticed(copies, shard):
    path, parts = shard
    content = bytearray(path.read_bytes())
    content[parts[1].offset - 400] ^= 1
    path.write_bytes(content)
    with pytest.raises(VideoError, match=r"the header of folder/b c, d:e\.mp4"):
        path_of(shard, copies, 1)


@pytest.mark.parametrize("change", ["name", "size"])
def test_another_file_in_the_place_is_never_read(copies, shard, change):
    path, parts = shard
    name, file = copies[1]
    asked = (name, file.stat().st_size + 1) if change == "size" else ("b.mp4", file.stat().st_size)
    with pytest.raises(VideoError, match="another file is in the place of"):
        part_path(str(path), asked[0], parts[1], asked[1])


@pytest.fixture
def folder(tmp_path) -> Path:
    """Five videos, and a store of their copies in shards."""
    names = [f"class{number % 2}/{number}.mp4" for number in range(5)]
    for number, name in enumerate(names):
        write_smooth(tmp_path / "videos" / name, ticks=[512 * tick for tick in range(3 + number)])
    fill(tmp_path)
    return tmp_path


def fill(folder) -> Filled:
    names = [str(path.relative_to(folder / "videos")) for path in (folder / "videos").glob("*/*")]
    return fill_store(store_in(folder), order(folder / "videos"), names, 1, progress=False)


def frames(folder) -> list[np.ndarray]:
    """Frames of every video at every level."""
    index = StoreIndex(store_in(folder), folder / "videos", PyavReader)
    shown = []
    for path in sorted((folder / "videos").glob("*/*")):
        with index(str(path)) as video:
            shown += [video.frames_at([0.0, 0.05, 9.0], level).pixels for level in (64, 32)]
    return shown


def test_a_store_in_shards_gives_the_frames_of_its_files_and_is_filled_further(folder):
    from_files = frames(folder)
    pack_store(store_in(folder))
    assert list((folder / "store").rglob("*.mp4")) == []
    for one, other in zip(frames(folder), from_files, strict=True):
        assert np.array_equal(one, other)
    assert fill(folder) == Filled(0, 5, ())
    store_in(folder).shard(64, 0).write_bytes(b"")
    write_smooth(folder / "videos" / "class0" / "4.mp4", ticks=[0, 512])
    assert fill(folder).num_copied >= 3
    assert fill(folder) == Filled(0, 5, ())
    assert len(frames(folder)) == 10
