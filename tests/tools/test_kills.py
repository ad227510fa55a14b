"""Kills at random moments of a row, and in every phase of a transformer: each run ends with the same bits."""

from __future__ import annotations

import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import pytest
from run_files import assert_bit_identical, read_lines
from tiny import RECIPE_OF_TRANSFORMERS, VIT, command, data_keys, run_net, write_config
from tqdm import tqdm

from mgexp.config.load import load_config
from mgexp.run.files import read_jsonl
from mgexp.run.folder import RunDir
from mgexp.train.loop import milestones
from mgexp.train.setup import build_row_schedule

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

EXACT = ("step", "epoch", "clips", "frames", "crop", "lr", "loss")
SCORES = ("step", "epoch", "top1", "top5", "loss", "views", "num_videos")


@dataclass(frozen=True)
class Moment:
    """When to kill: ``seconds`` after the start, or after ``condition`` first holds of the run folder."""

    name: str
    seconds: float
    condition: Callable[[RunDir], bool] = lambda run: True


@dataclass(frozen=True)
class Hit:
    """Where a kill hit, as the folder shows it afterwards."""

    step: int
    place: str


class Runner:
    """Starts run_net.py in processes of their own, forked from this one: imports take longer than a small row."""

    def __init__(self, said: Path) -> None:
        self.said = said
        self._main = run_net().main

    def start(self, arguments: Sequence[object]):
        process = get_context("fork").Process(target=self._run, args=([*map(str, arguments)],))
        process.start()
        return process

    def finish(self, arguments: Sequence[object]) -> None:
        """Starts the run and lets it end."""
        process = self.start(arguments)
        process.join()
        assert process.exitcode in (0, 3), self.said.read_text()

    def kill(self, arguments: Sequence[object], run: RunDir, moment: Moment) -> Hit | None:
        """Starts the run and kills it at the moment; None where it had ended before."""
        process = self.start(arguments)
        try:
            while process.is_alive() and not moment.condition(run):
                time.sleep(0.0005)
            process.join(moment.seconds)
            if not process.is_alive():
                return None
        finally:
            process.kill()
            process.join()
        return where(run)

    def _run(self, arguments: list[str]) -> None:
        # All processes that are forked from one share its lock, and a killed one may hold it.
        tqdm.set_lock(threading.RLock())
        with self.said.open("ab") as file:
            for descriptor in (1, 2):
                os.dup2(file.fileno(), descriptor)
        sys.exit(self._main(arguments))


def where(run: RunDir) -> Hit:
    """What the run was at."""
    steps = [line["step"] + 1 for line in read_jsonl(run.metrics_jsonl)]
    last = steps[-1] if steps else 0
    evaluated = [line["step"] for line in read_jsonl(run.evaluations_jsonl)]
    saved = run.checkpoint_steps()
    if list(run.checkpoints.glob(".*.tmp")):
        return Hit(last, "saving")
    if run.model.exists() and last not in evaluated:
        return Hit(last, "final evaluation")
    if saved and saved[-1] == last and last in milestones_of(run) and last not in evaluated:
        return Hit(last, "evaluation")
    if last in boundaries(run):
        return Hit(last, "change of phase")
    return Hit(last, "training" if last else "start-up")


def boundaries(run: RunDir) -> set[int]:
    """First steps of the phases."""
    lines = run.schedule_csv.read_text().splitlines() if run.schedule_csv.exists() else []
    column = lines[0].split(",").index("start_step") if lines else 0
    return {int(line.split(",")[column]) for line in lines[1:]} - {0}


def milestones_of(run: RunDir) -> set[int]:
    """Steps after which the row is evaluated during training, by the configuration of the run."""
    cfg = load_config(run.config_yaml)
    listed = len(Path(cfg.DATA.TRAIN_LIST).read_text().splitlines())
    schedule = build_row_schedule(cfg, cfg.DATA.MAX_TRAIN_VIDEOS or listed)
    return set(milestones(schedule, cfg.TRAIN.NUM_EVALUATIONS)[:-1])


def assert_same(folder: Path, other: Path) -> None:
    """Weights, momenta, statistics, evaluated weights, losses and accuracies, bit for bit."""
    assert_bit_identical(folder, other)
    for name, keys in (("metrics.jsonl", EXACT), ("evaluations.jsonl", SCORES)):
        found, wanted = (
            [{key: line.get(key) for key in keys} for line in read_lines(one / name)]
            for one in (folder, other)
        )
        assert found == wanted, name


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


def moments(alone, seconds, rng):
    """Seven at places where something special is under way, the others anywhere."""
    run = RunDir(alone)
    phases = sorted(boundaries(run))
    (middle,) = milestones_of(run)
    chosen = [
        *(Moment("saving", 0.0, saving(number)) for number in (1, 3)),
        # The evaluation follows the checkpoint of a milestone.
        *(
            Moment("evaluation", wait, lambda run: run.checkpoint(middle).exists())
            for wait in (0.0, 0.1)
        ),
        *(Moment("change of phase", 0.0, after_step(rng.choice(phases))) for _ in range(2)),
        Moment("final evaluation", 0.01, lambda run: run.model.exists()),
    ]
    for _ in range(NUM_KILLS - len(chosen)):  # the start counts as a step
        step, pause = after_step(rng.randrange(NUM_STEPS)), rng.uniform(0, seconds / NUM_STEPS)
        chosen.append(Moment("anywhere", pause, step))
    return chosen


def test_twenty_kills_of_twenty_change_nothing(tiny_data, tmp_path):
    cfg = write_config(tmp_path / "row.yaml", {**data_keys(tiny_data), **ROW})
    runner, alone = Runner(tmp_path / "said.txt"), tmp_path / "alone"
    begin = time.monotonic()
    runner.finish(command(cfg, alone))
    seconds = time.monotonic() - begin
    assert len(read_lines(alone / "metrics.jsonl")) == NUM_STEPS
    assert len(boundaries(RunDir(alone))) >= 3
    assert len(read_lines(alone / "evaluations.jsonl")) == 2
    places = set()
    for number, moment in enumerate(moments(alone, seconds, random.Random(SEED))):
        folder = tmp_path / f"run{number}"
        arguments = command(cfg, folder, "DATA_LOADER.NUM_WORKERS", int(number % 4 == 0))
        hit = runner.kill(arguments, RunDir(folder), moment)
        runner.finish(arguments)
        assert_same(folder, alone)
        assert hit, f"{moment} was too late"
        places.add(hit.place)
        shutil.rmtree(folder)
    assert {"saving", "evaluation", "change of phase"} <= places


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
