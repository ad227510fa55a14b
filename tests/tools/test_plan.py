"""plan.py: measurement and prediction of a tiny row, and exit codes."""

import pytest
import simplejson
from tiny import data_keys, load_tool, write_config

plan = load_tool("plan")

FEW_SHAPES = {
    "MULTIGRID.SHORT_CYCLE": False,
    "MULTIGRID.LONG_CYCLE_FACTORS": [[0.5, 1.0], [1.0, 1.0]],
}


@pytest.fixture
def row(tmp_path):
    return write_config(tmp_path / "tiny.yaml", {**FEW_SHAPES, "DATA.NUM_VIDEOS": 24})


def test_rows_beside_the_given_one_are_planned(tiny_data, tmp_path):
    keys = {**data_keys(tiny_data), **FEW_SHAPES}
    base = write_config(tmp_path / "baseline.yaml", {**keys, "MULTIGRID.LONG_CYCLE": False})
    write_config(tmp_path / "long.yaml", keys)
    output = tmp_path / "plan.json"
    assert plan.main(["--cfg", str(base), "--steps", "1", "--output", str(output)]) == 0
    found = simplejson.loads(output.read_text())
    assert found["environment"]["commit"]
    assert len(found["rows"]) == 2
    for one in found["rows"]:
        steps = sum(phase["steps"] * phase["step"] for phase in one["phases"])
        assert one["train_seconds"] == pytest.approx(steps + one["first_use_seconds"])
        assert all(phase["loading_core_seconds"] > 0 for phase in one["phases"])


def test_without_videos_the_seconds_of_clips_are_a_key(row, capsys):
    assert plan.main(["--cfg", str(row), "--steps", "1"]) == 0
    key = capsys.readouterr().out.split("MULTIGRID.CLIP_SECONDS '")[1].split("'")[0]
    assert {(8, 32), (4, 32)} == {(frames, crop) for frames, crop, _ in simplejson.loads(key)}


@pytest.mark.parametrize("pair", [("--num-gpus", "0"), ("TRAIN.COMPILE", "default")])
def test_bad_input_ends_with_2(row, capsys, pair):
    assert plan.main(["--cfg", str(row), *pair]) == 2
    assert pair[0] in capsys.readouterr().err
