"""Whether a row is likely to pay: the take-off by hand, the keys of an adapted run, a forecast of a tiny run."""

import json
import subprocess
import sys

import pytest
from tiny import command, data_keys, run_net, write_config

from mgexp.config.load import load_config
from mgexp.errors import InputError
from mgexp.launch.forecast import (
    adapting_keys,
    forecast_findings,
    read_baseline,
    shape_finding,
    steps_finding,
    takeoff_step,
)
from mgexp.run.folder import RunDir
from mgexp.train.setup import build_row_schedule

BASELINE = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False, "LOG_PERIOD": 1}
MISSED = {"EXPECTED": [["top1", 0.0, 0.0]]}
"""Rows of tables expect an accuracy, which a tenth of the training need not reach."""


@pytest.fixture(scope="module")
def baseline(tiny_data, tmp_path_factory):
    """The folder of a finished run at one shape that missed what it expects; read only but for adapted/."""
    folder = tmp_path_factory.mktemp("baseline")
    cfg = write_config(folder / "tiny.yaml", {**data_keys(tiny_data), **BASELINE, **MISSED})
    assert run_net().main(command(cfg, folder / "run")) == 3
    return folder / "run"


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        # Means of ten lines: 4 at step 100, then 0.3 less with each line, and 1 at the end. Half is 2.5.
        ([4.0] * 10 + [1.0] * 10, 150),
        # Fewer than ten lines are averaged all at once.
        ([3.0, 1.0], 20),
        # A short peak, and a fall after a long plateau.
        ([3.0] * 40 + [1.0] * 40, 450),
    ],
)
def test_the_takeoff_is_half_of_the_fall_of_the_smoothed_loss(losses, expected):
    assert takeoff_step([(10 * (n + 1), loss) for n, loss in enumerate(losses)]) == expected


def test_a_row_is_judged_by_its_steps_and_its_shapes():
    """5 take-offs and half of the accuracy are enough, and less is not."""
    assert steps_finding(1000, 200).status == "OK"
    assert steps_finding(999, 200).status == "warning"
    assert shape_finding((2, 34), 40.0, 80.0).status == "OK"
    assert shape_finding((2, 34), 39.9, 80.0).status == "warning"
    assert shape_finding((2, 34), 0.0, 0.0).status == "warning"


def test_an_adapted_run_has_the_shape_and_the_longest_stride_of_the_row(tiny_data, tmp_path):
    """The tiny row has 8 frames of 32 pixels at stride 1; 2 x 23² spans as much time with stride 4."""
    row = load_config(write_config(tmp_path / "row.yaml", data_keys(tiny_data)))
    base = load_config(write_config(tmp_path / "base.yaml", {**data_keys(tiny_data), **BASELINE}))
    schedule = build_row_schedule(row, 24)
    keys = adapting_keys(base, RunDir(tmp_path), schedule, (2, 23))
    assert {name.partition(".")[2]: value for name, value in keys.items() if "DATA" in name} == {
        "NUM_FRAMES": "2",
        "SAMPLING_RATE": "4",
        "TRAIN_CROP_SIZE": "23",
        "TEST_CROP_SIZE": "23",
        "TRAIN_JITTER_SCALES": "[23, 29]",
        "MAX_VAL_VIDEOS": "500",
    }
    assert float(keys["SOLVER.MAX_EPOCH"]) == pytest.approx(base.SOLVER.MAX_EPOCH / 10)


def test_a_baseline_is_adapted_to_every_shape_and_a_second_call_trains_nothing(
    baseline, tiny_data, tmp_path, monkeypatch
):
    row = load_config(write_config(tmp_path / "row.yaml", data_keys(tiny_data)))
    schedule = build_row_schedule(row, 24)
    first = [*forecast_findings(schedule, *read_baseline(baseline), print)]
    assert len(first) == len(schedule.sizes)  # the steps, and every shape but the full one
    for frames, crop in schedule.sizes:
        adapted = load_config(baseline / "adapted" / f"{frames}x{crop}" / "config.yaml")
        assert (frames, crop) == (adapted.DATA.NUM_FRAMES, adapted.DATA.TRAIN_CROP_SIZE)
        assert str(baseline / "model.pt") == adapted.TRAIN.INIT_WEIGHTS
    result = json.loads((baseline / "adapted" / "8x32" / "result.json").read_text())
    assert result["verdict"] == "missed"
    monkeypatch.setattr("mgexp.launch.forecast.run_in_process", None)
    assert [*forecast_findings(schedule, *read_baseline(baseline), print)] == first


def test_a_run_at_several_shapes_is_no_baseline(finished_run):
    with pytest.raises(InputError, match="trained at several shapes"):
        read_baseline(finished_run)


def test_the_doctor_prints_it(baseline, tiny_data, tmp_path):
    row = write_config(tmp_path / "row.yaml", data_keys(tiny_data))
    options = ["tools/doctor.py", "--cfg", str(row), "--run", str(baseline), "--json"]
    done = subprocess.run([sys.executable, *options], capture_output=True, text=True, check=False)
    names = [one["name"] for one in json.loads(done.stdout)["findings"]]
    assert names.count("multigrid: length") == 1 and names.count("multigrid: shape") == 7
