"""Kills at random moments of a row, and in every phase of a transformer: each run ends with the same bits."""

from __future__ import annotations

import random
import shutil
import time
from itertools import pairwise

import pytest
from kills import Moment, Runner, assert_same, boundaries, milestones_of
from run_files import read_lines
from tiny import RECIPE_OF_TRANSFORMERS, VIT, command, data_keys, write_config

from mgexp.run.folder import RunDir

pytestmark = pytest.mark.slow

SEED = 20191202  # the day of the paper (arXiv 1912.00998)
NUM_KILLS, NUM_STEPS = 20, 60
ROW = {
    "TRAIN.BATCH_SIZE": 2,
    "TRAIN.CHECKPOINT_MINUTES": 0.005,
    "MULTIGRID.BN_BASE_SIZE": 2,
    "SOLVER.STEPS": [0, 10.5],
    "SOLVER.MAX_EPOCH": 13,
}


def saving(number):
    """While a checkpoint is written, the ``number``-th that is seen."""
    seen = set()

    def holds(run):
        found = [path.name for path in run.checkpoints.glob(".*.tmp")]
        seen.update(found)
        return bool(found) and len(seen) >= number

    return holds


def after_step(step):
    """When so many steps are recorded."""

    def holds(run):
        path = run.metrics_jsonl
        return step == 0 or (path.exists() and path.read_text().count("\n") >= step)

    return holds


def anywhere(rng, seconds):
    """At a random moment of a random step, the start counted as one."""
    return Moment(
        "anywhere", rng.uniform(0, seconds / NUM_STEPS), after_step(rng.randrange(NUM_STEPS))
    )


def moments(alone, seconds, rng):
    """Seven at places where something special is under way, the others anywhere."""
    run = RunDir(alone)
    phases = sorted(boundaries(run))
    (middle,) = milestones_of(run)
    chosen = [
        *(Moment("saving", 0.0, saving(number)) for number in (1, 3)),
        *(Moment("evaluation", pause, after_save(middle)) for pause in (0.0, 0.1)),
        *(Moment("change of phase", 0.0, after_step(rng.choice(phases))) for _ in range(2)),
        Moment("final evaluation", 0.01, lambda run: run.model.exists()),
    ]
    return [*chosen, *(anywhere(rng, seconds) for _ in range(NUM_KILLS - len(chosen)))]


def after_save(step):
    """When the checkpoint of a milestone is there, which the evaluation follows."""
    return lambda run: run.checkpoint(step).exists()


def test_twenty_kills_of_twenty_change_nothing(tiny_data, tmp_path, capsys):
    cfg = write_config(tmp_path / "row.yaml", {**data_keys(tiny_data), **ROW})
    runner, alone = Runner(tmp_path / "said.txt"), tmp_path / "alone"
    begin = time.monotonic()
    runner.finish(command(cfg, alone))
    seconds = time.monotonic() - begin
    assert len(read_lines(alone / "metrics.jsonl")) == NUM_STEPS
    assert len(boundaries(RunDir(alone))) >= 3
    assert len(read_lines(alone / "evaluations.jsonl")) == 2
    lines = []
    for number, moment in enumerate(moments(alone, seconds, random.Random(SEED))):
        folder = tmp_path / f"run{number}"
        arguments = command(cfg, folder, "DATA_LOADER.NUM_WORKERS", int(number % 4 == 0))
        hit = runner.kill(arguments, RunDir(folder), moment)
        runner.finish(arguments)
        assert_same(folder, alone)
        assert hit, f"{moment} was too late"
        place = f"after step {hit.step:2d}, {hit.place}"
        lines.append(f"{number + 1:2d}  {moment.name:16}  {place:32}  the same bits")
        with capsys.disabled():
            print(f"\n{lines[-1]}", end="", flush=True)
        shutil.rmtree(folder)
    hits = "\n".join(lines)
    assert hits.count("the same bits") == NUM_KILLS
    for place in ("saving", "evaluation", "change of phase"):
        assert f", {place}" in hits, hits


def test_a_kill_inside_any_phase_of_a_transformers_recipe_changes_nothing(tiny_data, tmp_path):
    """Mixup, CutMix, label smoothing, repeats, layer decay, drop path, average of the weights: all at once."""
    keys = {**data_keys(tiny_data), **VIT, **RECIPE_OF_TRANSFORMERS, **ROW}
    keys["TRAIN.CHECKPOINT_MINUTES"] = 0.0005
    cfg = write_config(tmp_path / "row.yaml", keys)
    runner, alone = Runner(tmp_path / "said.txt"), tmp_path / "alone"
    runner.finish(command(cfg, alone))
    lines = read_lines(alone / "metrics.jsonl")
    assert len({(line["frames"], line["crop"]) for line in lines}) >= 6
    bounds = [0, *sorted(boundaries(RunDir(alone))), len(lines)]
    assert len(bounds) == 6
    for start, end in pairwise(bounds):
        folder = tmp_path / f"run{start}"
        moment = Moment("inside a phase", 0.0, after_step((start + end) // 2))
        hit = runner.kill(command(cfg, folder), RunDir(folder), moment)
        assert hit is not None
        assert start < hit.step < end
        assert start < RunDir(folder).checkpoint_steps()[-1] < end
        runner.finish(command(cfg, folder))
        assert_same(folder, alone)
