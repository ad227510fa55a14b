"""tools/sweep.py and tools/study.py on a real Slurm: arrays, their states, their ends."""

import json

import pytest
import yaml
from jobs import SHORT, SWEEP_TOOL, call, wait_for, wait_for_step
from run_files import assert_same, read_lines
from tiny import data_keys, write_config

from mgexp.run.folder import RunDir

pytestmark = pytest.mark.slurm
STUDY_TOOL = SWEEP_TOOL.with_name("study.py")
ALONE = {"MULTIGRID.LONG_CYCLE": False, "MULTIGRID.SHORT_CYCLE": False, "ROW": "baseline"}


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


def test_a_study_of_two_rows(cluster, tiny_data, tmp_path, monkeypatch, short_run):
    """The first call submits, the second one does not, and one after the end collects."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "experiments" / "group"
    folder.mkdir(parents=True)
    write_config(folder / "short.yaml", {**data_keys(tiny_data), **SHORT})
    write_config(folder / "baseline.yaml", {**data_keys(tiny_data), **SHORT, **ALONE})
    study = {"rows": ["baseline", "short"], "seeds": 1, "margin": 5.0}
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    options = (folder, "--launcher", "slurm", "--partition", "low")
    assert "2 runs are submitted" in call(STUDY_TOOL, options, cluster)
    call(STUDY_TOOL, options, cluster)
    runs = folder / "runs/sweeps/runs/all"
    results = [RunDir(runs / row / "seed0").result_json for row in ("baseline", "short")]
    wait_for(lambda: all(path.exists() for path in results), "end of both")
    call(STUDY_TOOL, options, cluster)
    assert len(read_lines(folder / "runs/sweeps/submissions.jsonl")) == 2
    assert "missing" not in (folder / "README.md").read_text()
    assert_same(runs / "short" / "seed0", short_run)
