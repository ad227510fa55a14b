"""prepare_data.py: what it makes, what its plan says, its exit codes."""

import os
import re

import pytest
from tiny import NUM_TRAIN, NUM_VAL, data_keys, load_tool, tiny_config, write_config

from mgexp.data.lists import build_list
from mgexp.data.loader import build_opener, store_problems
from mgexp.video.store import Copy, Stamp, StoreDir, StoredVideo
from mgexp.video.store_fill import Filled, Order

HERE = ("--processes", "1", "--time-limit", "0")
"""Encode in this process, which starts no other."""


TOOL = load_tool("prepare_data")
prepare = TOOL.main


def arguments(data, store, *others):
    cfg = write_config(store.parent / "tiny.yaml", data_keys(data))
    sides = () if "--short-sides" in others else ("--short-sides", "32", "16")
    return [str(word) for word in ("--cfg", cfg, "--store", store, *sides, *HERE, *others)]


def test_it_fills_a_store_and_keeps_what_is_there(tiny_data, tmp_path, capsys):
    assert prepare(arguments(tiny_data, tmp_path / "store")) == 0
    assert f"{NUM_TRAIN + NUM_VAL} videos copied, 0 kept, 0 lacking" in capsys.readouterr().out
    assert len(StoreDir(tmp_path / "store").read()) == NUM_TRAIN + NUM_VAL
    assert prepare(arguments(tiny_data, tmp_path / "store")) == 0
    assert f"0 videos copied, {NUM_TRAIN + NUM_VAL} kept" in capsys.readouterr().out


def test_videos_without_a_copy_are_named_and_no_failure(data, tmp_path, capsys):
    (data / "train3.mp4").write_bytes(b"no video")
    (data / "val1.mp4").unlink()
    assert prepare(arguments(data, tmp_path / "store")) == 0
    out = capsys.readouterr().out
    assert re.search(r"train3\.mp4: .*Invalid data", out)
    assert re.search(r"val1\.mp4: .*No such file", out)


def test_the_plan_is_near_what_the_store_then_takes(tiny_data, tmp_path, capsys):
    assert prepare(arguments(tiny_data, tmp_path / "store", "--plan")) == 0
    plan = capsys.readouterr().out
    assert not (tmp_path / "store").exists()
    assert prepare(arguments(tiny_data, tmp_path / "store")) == 0
    for level in (32, 16):
        real = sum(path.stat().st_size for path in (tmp_path / "store" / str(level)).iterdir())
        planned = float(re.search(rf"short side {level} +([\d.]+) GB", plan)[1]) * 1e9
        assert planned == pytest.approx(real, rel=0.2, abs=2e6)  # printed to a megabyte


def test_the_table_of_a_plan_has_every_figure_and_says_what_does_not_fit(tmp_path):
    """Ten videos of 0.5 GB each, the first two of them sampled: each a fifth of all the bytes."""
    names = [f"{number}.mp4" for number in range(10)]
    for name in names:
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 5 * 10**8)
    levels = {320: Copy(256, 340, 3 * 10**8), 160: Copy(160, 212, 10**8)}
    stamp = Stamp(5 * 10**8, 0)
    videos = tuple(StoredVideo(name, stamp, 300, 10.0, 256, 340, levels) for name in names[:2])
    plan = (Order(tmp_path, (160, 320), 2), names, videos, 240.0, 2)
    lines = TOOL.disk_table(*plan, free_bytes=10**12).splitlines()
    figures = [line.rsplit(None, 2)[:2] for line in lines[1:5]]
    assert figures == [
        ["  videos", "5.000"],
        ["  short side 320", "3.000"],
        ["  short side 160", "1.000"],
        ["  store in all", "4.000"],
    ]
    assert lines[5].endswith("encoding takes about 10 min 00 s with 2 processes")
    assert "it does not fit: 3.900 GB are free" in TOOL.disk_table(*plan, free_bytes=39 * 10**8)


def test_a_store_of_other_videos_is_a_problem(data, tmp_path):
    records = build_list(tiny_config(tmp_path, data_keys(data)), "TRAIN_LIST").records
    (data / "train.txt").write_text((data / "val.txt").read_text())
    assert prepare(arguments(data, tmp_path / "store")) == 0
    cfg = tiny_config(tmp_path, {**data_keys(data), "DATA.STORE": str(tmp_path / "store")})
    (problem,) = store_problems(build_opener(cfg), cfg.DATA.STORE, records)
    assert "a copy of none of the 24 training videos" in problem


OFF = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False}
RELATIVE = {
    "DATA.TRAIN_JITTER_SCALES_RELATIVE": [0.08, 1.0],
    "DATA.TRAIN_JITTER_ASPECT_RELATIVE": [0.75, 1.3333],
}


@pytest.mark.parametrize(
    ("changes", "levels"),
    [
        # The least crop is half, so clips are drawn from 16 pixels on: 40, 28 and 20 are all read.
        ({}, (40, 28, 20)),
        # A baseline draws 32 pixels or more, and 28 is too few for every clip.
        (OFF, (40,)),
        # Crops of 32, 22.6 and 16 pixels are read from copies of 40, 28.3 and 20.
        (RELATIVE, (40, 30, 20)),
        # The evaluation is sharper than training.
        ({"DATA.TEST_CROP_SIZE": 48, "MULTIGRID.SHORT_CYCLE": False}, (48, 34, 24)),
    ],
)
def test_a_store_has_the_sizes_that_the_clips_of_the_row_are_read_from(changes, levels, tmp_path):
    assert load_tool("prepare_data").store_levels(tiny_config(tmp_path, changes)) == levels


def test_a_limit_of_time_holds_unless_it_is_0(tiny_data, tmp_path, monkeypatch):
    tool, asked = load_tool("prepare_data"), []

    def fill_store(store, order, paths, num_processes, progress, limit_seconds):
        asked.append(limit_seconds)
        return Filled(0, 0, ())

    monkeypatch.setattr(tool, "fill_store", fill_store)
    words = arguments(tiny_data, tmp_path / "store")
    for option in ("0", "7.5"):
        assert tool.main([*words, "--time-limit", option]) == 0
    assert asked == [0.0, 7.5]
