"""Twenty kills at random moments of a row of 60 steps: each run ends with the same bits."""

from __future__ import annotations

import random
import shutil
import time

import pytest
from kills import Moment, assert_same, boundaries, finish, kill, milestones_of
from run_files import read_lines
from tiny import command, data_keys, write_config

from mgexp.record.run_dir import RunDir

pytestmark = pytest.mark.slow

SEED = 20191202  # the day of the paper (arXiv 1912.00998)
ROW = {
    "SOLVER.STEPS": [0, 14, 21],
    "SOLVER.MAX_EPOCH": 24,
    "TRAIN.CHECKPOINT_MINUTES": 0.005,
    "TEST.BATCH_SIZE": 4,
    "DATA_LOADER.NUM_WORKERS": 1,
}


def saving(number):
    """While a checkpoint is written, the ``number``-th that is seen."""
    seen = set()

    def holds(run):
        seen.update(path.name for path in run.checkpoints.glob(".*.tmp"))
        return len(seen) >= number and any(run.checkpoints.glob(".*.tmp"))

    return holds


def after_step(step):
    """When so many steps are recorded."""

    def holds(run):
        return run.metrics_jsonl.exists() and run.metrics_jsonl.read_text().count("\n") >= step

    return holds


def evaluating(step):
    return lambda run: run.checkpoint(step).exists()


def moments(alone, seconds, rng):
    """Six at places where something special is under way, the others anywhere."""
    run = RunDir(alone)
    phases = sorted(boundaries(run))
    (middle,) = milestones_of(run)
    chosen = [
        *(Moment("saving", 0.0, saving(number)) for number in (1, 3)),
        *(Moment("evaluation", pause, evaluating(middle)) for pause in (0.0, 0.1)),
        *(Moment("change of phase", 0.0, after_step(rng.choice(phases))) for _ in range(2)),
        Moment("final evaluation", 0.02, lambda run: run.model.exists()),
    ]
    return [
        *chosen,
        *(Moment("anywhere", rng.uniform(0, seconds)) for _ in range(20 - len(chosen))),
    ]


def test_twenty_kills_of_twenty_change_nothing(tiny_data, tmp_path, capsys):
    cfg = write_config(tmp_path / "row.yaml", {**data_keys(tiny_data), **ROW})
    alone, said, rng = tmp_path / "alone", tmp_path / "said.txt", random.Random(SEED)
    begin = time.monotonic()
    finish(command(cfg, alone), said)
    seconds = time.monotonic() - begin
    assert len(read_lines(alone / "metrics.jsonl")) == 60
    assert len(boundaries(RunDir(alone))) >= 3
    assert len(read_lines(alone / "evaluations.jsonl")) == 2
    lines = []
    for number, moment in enumerate(moments(alone, seconds, rng)):
        folder = tmp_path / f"run{number}"
        hit = kill(command(cfg, folder), RunDir(folder), moment, said)
        begin = time.monotonic()
        finish(command(cfg, folder), said)
        assert_same(folder, alone)
        place = f"after step {hit.step:2d}, {hit.place}" if hit else "too late"
        lines.append(f"{number + 1:2d}  {moment.name:16}  {place:32}  the same bits")
        with capsys.disabled():
            print(f"\n{lines[-1]}  ({time.monotonic() - begin:.1f} s to the end)", end="")
        shutil.rmtree(folder)
    hits = "\n".join(lines)
    assert hits.count("the same bits") == 20
    for place in ("saving", "evaluation", "change of phase"):
        assert f", {place}" in hits, hits
    assert "too late" not in hits
