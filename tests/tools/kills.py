"""Kills a row with SIGKILL, starts it again, and compares with the row that was left alone.

    PYTHONPATH=tests python tests/tools/kills.py --cfg experiments/quickstart/long.yaml --runs runs/kills

trains the row twice, the second time with a kill at a random moment, and says whether the results are the same,
bit for bit. ``--same-as runs/quickstart/long/seed0`` takes a finished run for the first. ``test_kills.py``
does that to a small row, twenty times.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from run_files import assert_bit_identical, read_lines
from tiny import run_net

from mgexp.config.load import load_config
from mgexp.run.files import read_jsonl
from mgexp.run.folder import RunDir
from mgexp.train.loop import milestones
from mgexp.train.setup import build_row_schedule

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


def main() -> None:
    """For a row that takes minutes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cfg", required=True)
    parser.add_argument("--runs", required=True, type=Path, help="folder for the two runs")
    parser.add_argument("--same-as", type=Path, help="a finished run of the row, left alone")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    parser.add_argument("--kills", type=int, default=1)
    options, pairs = parser.parse_known_args()
    alone, killed = options.same_as or options.runs / "alone", options.runs / "killed"
    options.runs.mkdir(parents=True, exist_ok=True)
    runner, rng = Runner(options.runs / "said.txt"), random.Random(options.seed)
    if not options.same_as:
        runner.finish(["--cfg", options.cfg, "--output", alone, *pairs])
    seconds = read_lines(alone / "evaluations.jsonl")[-1]["train_seconds"]
    arguments = ["--cfg", options.cfg, "--output", killed, *pairs]
    for _ in range(options.kills):
        moment = Moment("random", rng.uniform(0, seconds / options.kills))
        hit = runner.kill(arguments, RunDir(killed), moment)
        print(f"killed {moment.seconds:.1f} s after the start: {hit or 'too late'}", flush=True)
    runner.finish(arguments)
    assert_same(killed, alone)
    print("the same bits: weights, statistics, momenta, losses, accuracies")


if __name__ == "__main__":
    main()
