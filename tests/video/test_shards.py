"""Shards: tar files that tarfile and WebDataset read, the same frames from them, and damage that is noticed."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest
from stores import order, store_in, write_smooth

from mgexp.video.pyav import PyavReader
from mgexp.video.reader import VideoError
from mgexp.video.shards import Part, crc32_of, part_path, write_shard
from mgexp.video.store_fill import fill_store

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


def test_tarfile_finds_the_copies_where_the_parts_say(copies, shard):
    path, parts = shard
    with tarfile.open(path) as tar:
        members = tar.getmembers()
        assert [member.name for member in members] == NAMES
        assert [member.offset_data for member in members] == [part.offset for part in parts]
        for member, (_, file) in zip(members, copies, strict=True):
            assert tar.extractfile(member).read() == file.read_bytes()
    assert {part.shard for part in parts} == {3}


def test_the_same_copies_give_the_same_bytes(copies, shard, tmp_path):
    write_shard(tmp_path / "again.tar", 3, copies)
    assert (tmp_path / "again.tar").read_bytes() == shard[0].read_bytes()


@pytest.mark.parametrize("position", range(4))
def test_frames_and_duration_are_those_of_the_file(copies, shard, position):
    times = [0.0, 0.05, 0.1]
    with (
        PyavReader(str(copies[position][1])) as file,
        PyavReader(path_of(shard, copies, position)) as part,
    ):
        assert part.duration_seconds == file.duration_seconds
        assert np.array_equal(part.frames_at(times).rgb(), file.frames_at(times).rgb())


def test_the_sum_is_that_of_the_bytes(copies, shard):
    path, parts = shard
    size = copies[1][1].stat().st_size
    assert crc32_of(path, parts[1].offset, size) == parts[1].crc32
    content = bytearray(path.read_bytes())
    content[parts[1].offset + size - 1] ^= 1
    path.write_bytes(content)
    assert crc32_of(path, parts[1].offset, size) != parts[1].crc32


def test_a_shard_that_is_gone_is_named(copies, shard):
    shard[0].unlink()
    with pytest.raises(VideoError, match=r"000003\.tar: cannot be opened: No such file"):
        path_of(shard, copies, 0)


def test_a_shard_that_is_cut_short_fails_from_there_on(copies, shard):
    path, parts = shard
    content = path.read_bytes()
    path.write_bytes(content[: parts[2].offset + 100])
    path_of(shard, copies, 1)
    with pytest.raises(VideoError, match="ends before the end of"):
        path_of(shard, copies, 2)
    with pytest.raises(VideoError, match=r"is damaged .* --verify"):
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
