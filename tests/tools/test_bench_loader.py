"""bench_loader.py: what it measures of a tiny row, and its exit codes."""

import pytest
import simplejson
from tiny import data_keys, load_tool, tiny_config, write_config

from mgexp.plan.loading import kinds_of, phase_loads
from mgexp.train.setup import build_row_schedule
from mgexp.video.store import StoreDir
from mgexp.video.store_fill import Order, fill_store

bench = load_tool("bench_loader")


@pytest.fixture
def loads(tmp_path):
    return phase_loads(build_row_schedule(tiny_config(tmp_path), 24))


@pytest.fixture
def found(loads):
    """What loading costs the tiny row: seconds per clip of the videos and of the store, in three repeats."""
    seconds = {"videos": (0.3, 0.5, 0.4), "store": (0.05, 0.1, 0.08)}
    ways = {way: dict.fromkeys(kinds_of(loads), values) for way, values in seconds.items()}
    return bench.costs_json(loads, ways)


@pytest.fixture
def arguments(tiny_data, tmp_path):
    cfg = write_config(tmp_path / "tiny.yaml", data_keys(tiny_data))
    small = ("--num-clips", "2", "--repeats", "2")
    return lambda *others: ["--cfg", str(cfg), *small, *map(str, others)]


def test_it_measures_videos_and_stores(arguments, tiny_data, tmp_path):
    names = [path.name for path in tiny_data.glob("*.mp4")]
    order = Order(tiny_data, (48,), 6)
    fill_store(StoreDir(tmp_path / "store"), order, names, 1, progress=False)
    output = tmp_path / "loading.json"
    store = ("DATA.STORE", tmp_path / "store")
    assert bench.main(arguments("--steps-per-second", 2, "--output", output, *store)) == 0
    found = simplejson.loads(output.read_text())
    assert found["environment"]["commit"]
    assert list(found["ways"]) == ["videos", "store"]
    for way in found["ways"].values():
        assert len(way["ms_per_clip"]) == 2
        assert all(0 < value < 1000 for value in way["ms_per_clip"])


def test_the_json_holds_every_repeat_and_ratios_are_of_the_same_one(loads, found):
    assert len(found["phases"]) == len(loads)
    store = found["ways"]["store"]
    assert store["ms_per_clip"] == pytest.approx([50, 100, 80])
    assert store["kinds"][0]["ms_per_clip"] == pytest.approx([50, 100, 80])
    hours = sum(load.num_steps * load.clips_per_step for load in loads) * 0.08 / 3600
    assert store["core_hours"] == pytest.approx(hours)
    assert store["times_less"] == pytest.approx([6, 5, 5])
    assert found["ways"]["videos"]["times_less"] == [1, 1, 1]


def test_the_tables_have_its_numbers(found):
    per_clip, per_step, _, cores = bench.report(found, rate=2.0).split("\n\n")
    assert per_clip.splitlines()[-1].split()[-3:] == ["9.3", "400.00", "80.00"]
    # 28/3 clips a step of 0.4 or 0.08 s, twice a second.
    assert per_step.splitlines()[-1].split()[-2:] == ["3.73", "0.75"]
    assert cores.splitlines()[-1].split()[-3:] == ["19", "7.5", "1.5"]


def test_the_mean_clip_weighs_kinds_by_their_clips(loads):
    dear = kinds_of(loads)[0]
    seconds = {kind: (1.0 if kind == dear else 1e-12,) for kind in kinds_of(loads)}
    share = sum(load.num_steps * load.clips_of().get(dear, 0.0) for load in loads) / sum(
        load.num_steps * load.clips_per_step for load in loads
    )
    assert 0 < share < 1
    (way,) = bench.costs_json(loads, {"": seconds})["ways"].values()
    assert way["ms_per_clip"] == pytest.approx([1000 * share])
