"""bench_loader.py: what it measures of a tiny row, and its exit codes."""

import pytest
import simplejson
from tiny import data_keys, load_tool, tiny_config, write_config

from mgexp.plan.loading import kinds_of, phase_loads
from mgexp.train.setup import build_row_schedule
from mgexp.video.store import StoreDir
from mgexp.video.store_fill import Order, fill_store


@pytest.fixture(scope="module")
def bench():
    return load_tool("bench_loader")


@pytest.fixture
def costs(bench, tmp_path):
    """What loading costs the tiny row: seconds per clip of the videos and of the store, in three repeats."""
    loads = phase_loads(build_row_schedule(tiny_config(tmp_path), 24))
    seconds = {"videos": (0.3, 0.5, 0.4), "store": (0.05, 0.1, 0.08)}
    ways = {way: dict.fromkeys(kinds_of(loads), values) for way, values in seconds.items()}
    return bench.LoadingCosts(loads, ways)


@pytest.fixture
def arguments(tiny_data, tmp_path):
    cfg = write_config(tmp_path / "tiny.yaml", data_keys(tiny_data))
    small = ("--num-clips", "2", "--repeats", "2")
    return lambda *others: ["--cfg", str(cfg), *small, *map(str, others)]


def test_it_measures_videos_and_stores(bench, arguments, tiny_data, tmp_path, capsys):
    names = [path.name for path in tiny_data.glob("*.mp4")]
    order = Order(tiny_data, (48,), 6)
    fill_store(StoreDir(tmp_path / "store"), order, names, 1, progress=False)
    output = tmp_path / "loading.json"
    store = ("DATA.STORE", tmp_path / "store")
    assert bench.main(arguments("--steps-per-second", 2, "--output", output, *store)) == 0
    printed = capsys.readouterr().out
    ways = simplejson.loads(output.read_text())["ways"]
    assert list(ways) == ["videos", "store"]
    for name, way in ways.items():
        assert name in printed
        assert len(way["ms_per_clip"]) == 2
        assert all(0 < value < 1000 for value in way["ms_per_clip"])
    assert "what 2 steps per second need" in printed


def test_the_json_is_printed_alone(bench, arguments, capsys):
    assert bench.main(arguments("--json")) == 0
    found = simplejson.loads(capsys.readouterr().out)
    assert list(found["ways"]) == ["videos"]
    assert found["environment"]["commit"]


@pytest.mark.parametrize(
    ("others", "said"),
    [
        (["--repeats", "0"], "--repeats 0: give 1 or more"),
        (["DATA.STORE", "nowhere"], "nowhere is no clip store"),
        (["--make-videos", "v"], "--make-videos needs the number of training videos"),
    ],
)
def test_bad_input_ends_with_2(bench, arguments, capsys, others, said):
    assert bench.main(arguments(*others)) == 2
    assert said in capsys.readouterr().err


def test_a_broken_video_ends_with_1(bench, arguments, tiny_data, tmp_path, capsys):
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    (tmp_path / "list.txt").write_text("broken.mp4 0\n")
    keys = ("DATA.TRAIN_LIST", tmp_path / "list.txt", "DATA.PATH_PREFIX", tmp_path)
    assert bench.main(arguments(*keys)) == 1
    assert "broken.mp4" in capsys.readouterr().err


def test_core_seconds_of_a_step(bench, costs):
    clips = costs.loads[0].clips_per_step
    _, table = bench.report(costs, None).split("core s per step\n")
    assert table.splitlines()[1].split()[-2:] == [f"{0.4 * clips:.2f}", f"{0.08 * clips:.2f}"]


def test_cores_that_a_rate_of_steps_needs(bench, costs):
    line = bench.demand_table(costs, 2.0).splitlines()[1].split()
    clips = costs.loads[0].clips_per_step
    assert line[-2:] == [f"{2 * clips * 0.4:.1f}", f"{2 * clips * 0.08:.1f}"]
    assert line[-3] == f"{2 * clips:.0f}"


def test_the_json_holds_every_repeat(bench, costs):
    found = bench.costs_json(costs)
    assert len(found["phases"]) == len(costs.loads)
    store = found["ways"]["store"]
    assert store["ms_per_clip"] == pytest.approx([50, 100, 80])
    assert store["kinds"][0]["ms_per_clip"] == pytest.approx([50, 100, 80])
    hours = sum(load.num_steps * load.clips_per_step for load in costs.loads) * 0.08 / 3600
    assert store["core_hours"] == pytest.approx(hours)


def test_the_mean_clip_weighs_kinds_by_their_clips(bench, costs):
    loads = costs.loads
    dear = kinds_of(loads)[0]
    seconds = {kind: (1.0 if kind == dear else 0.0,) for kind in kinds_of(loads)}
    share = sum(load.num_steps * load.clips_of().get(dear, 0.0) for load in loads) / sum(
        load.num_steps * load.clips_per_step for load in loads
    )
    assert 0 < share < 1
    mean = bench.LoadingCosts(loads, {"": seconds}).ms_per_clip("")
    assert mean == pytest.approx([1000 * share])


def test_ratios_are_of_the_same_repeat(costs):
    assert costs.ms_per_clip("store") == pytest.approx([50, 100, 80])
    assert costs.times_less("store") == pytest.approx([6, 5, 5])
    assert costs.times_less("videos") == [1, 1, 1]
