"""tools/sweep.py on a real Slurm: an array, its states, its end."""

import json

import pytest
from jobs import SWEEP_TOOL, assert_same, call, wait_for, wait_for_step

pytestmark = pytest.mark.slurm


def sweep(cluster, config, folder, *options):
    return call(
        SWEEP_TOOL,
        [config, "--output", folder, "--launcher", "slurm", "--partition", "low", *options],
        cluster,
    )


def status(cluster, folder):
    return json.loads(call(SWEEP_TOOL, ["status", folder, "--json"], cluster))


def all_ended(cluster, folder):
    return all(one["state"] not in ("queued", "running") for one in status(cluster, folder))


def test_an_array_of_four(cluster, short, tmp_path, short_run):
    folder = tmp_path / "sweep"
    options = ("--seeds", "2", "--grid", "SOLVER.BASE_LR=0.005,0.004", "--parallel", "2")
    assert "submitted: 4 runs" in sweep(cluster, short, folder, *options)
    states = [one["state"] for one in status(cluster, folder)]
    assert states.count("queued") >= 2
    assert "4 finished or in progress" in sweep(cluster, short, folder, *options)
    wait_for(lambda: all_ended(cluster, folder), "end of the array")
    assert [one["state"] for one in status(cluster, folder)] == ["finished"] * 4
    assert_same(folder / "runs/SOLVER.BASE_LR=0.005/short/seed0", short_run)


def test_cancel_and_go_on(cluster, long, tmp_path, long_run):
    folder = tmp_path / "sweep"
    sweep(cluster, long, folder, "--seeds", "2", "--parallel", "1")
    run = folder / "runs/all/long/seed0"
    wait_for_step(run, 5)
    assert "2 cancelled" in call(SWEEP_TOOL, ["cancel", folder], cluster)
    wait_for(lambda: all_ended(cluster, folder), "end of the array")
    assert [one["state"] for one in status(cluster, folder)] == ["stopped"] * 2
    assert "submitted: 1 run," in sweep(cluster, long, folder, "--seeds", "1")
    wait_for((run / "result.json").exists, "result")
    assert_same(run, long_run)
