"""plan.py: measurement and prediction of a tiny row, and exit codes."""

import pytest
import simplejson
from tiny import data_keys, load_tool, write_config


@pytest.fixture(scope="module")
def plan():
    return load_tool("plan")


@pytest.fixture
def row(tmp_path):
    return write_config(tmp_path / "tiny.yaml", {"DATA.NUM_VIDEOS": 24})


def test_rows_beside_the_given_one_are_planned(plan, tiny_data, tmp_path, capsys):
    base = write_config(tmp_path / "baseline.yaml", data_keys(tiny_data))
    write_config(tmp_path / "long.yaml", {**data_keys(tiny_data), "MULTIGRID.SHORT_CYCLE": False})
    output = tmp_path / "plan.json"
    assert plan.main(["--cfg", str(base), "--steps", "1", "--output", str(output)]) == 0
    table = capsys.readouterr().out.split("\n\n")[0]
    assert [line.split()[0] for line in table.splitlines()[1:]] == ["baseline", "long"]
    found = simplejson.loads(output.read_text())
    assert found["environment"]["commit"]
    for one in found["rows"]:
        steps = sum(phase["steps"] * phase["step"] for phase in one["phases"])
        assert one["train_seconds"] == pytest.approx(steps + one["first_use_seconds"])
        assert all(phase["loading_core_seconds"] > 0 for phase in one["phases"])


def test_without_videos_loading_is_unknown_and_the_seconds_of_clips_are_a_key(plan, row, capsys):
    assert plan.main(["--cfg", str(row), "--steps", "1"]) == 0
    printed = capsys.readouterr().out
    assert "loading is unknown" in printed
    key = printed.split("MULTIGRID.CLIP_SECONDS '")[1].split("'")[0]
    assert {(8, 32), (2, 23)} < {(frames, crop) for frames, crop, _ in simplejson.loads(key)}


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["--num-gpus", "0"], "--num-gpus 0"),
        (["--num-gpus", "3"], "tiny.yaml"),
        (["TRAIN.COMPILE", "default"], "TRAIN.COMPILE"),
        (["TRAIN.MAX_CLIPS_PER_GPU", "2"], "TRAIN.MAX_CLIPS_PER_GPU = 2"),
    ],
)
def test_bad_input_ends_with_2(plan, row, capsys, arguments, where):
    assert plan.main(["--cfg", str(row), *arguments]) == 2
    assert where in capsys.readouterr().err
