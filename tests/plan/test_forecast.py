"""Whether a row is likely to pay: the take-off by hand, and the doctor's line about a tiny run."""

import json
import subprocess
import sys

import pytest
from tiny import command, data_keys, run_net, write_config

from mgexp.errors import InputError
from mgexp.plan.forecast import read_losses, steps_finding, takeoff_step

BASELINE = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False, "LOG_PERIOD": 1}


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


def test_five_takeoffs_are_enough_and_less_is_not():
    assert steps_finding(1000, 200).status == "OK"
    assert steps_finding(999, 200).status == "warning"


def test_a_run_at_several_shapes_is_no_baseline(finished_run):
    with pytest.raises(InputError, match="trained at several shapes"):
        read_losses(finished_run)


def test_the_doctor_prints_it(tiny_data, tmp_path):
    cfg = write_config(tmp_path / "baseline.yaml", {**data_keys(tiny_data), **BASELINE})
    assert run_net().main(command(cfg, tmp_path / "run")) == 0
    row = write_config(tmp_path / "row.yaml", data_keys(tiny_data))
    options = ["tools/doctor.py", "--cfg", str(row), "--run", str(tmp_path / "run"), "--json"]
    done = subprocess.run([sys.executable, *options], capture_output=True, text=True, check=False)
    names = [one["name"] for one in json.loads(done.stdout)["findings"]]
    assert names.count("multigrid: length") == 1
