"""Kills a row with SIGKILL, starts it again, and compares with the row that was left alone.

    python tests/tools/kills.py --cfg experiments/quickstart/long_short.yaml --runs runs/kills

trains the row twice, the second time with a kill at a random moment, and says whether the results are the same, bit
for bit. ``--same-as runs/quickstart/long_short/seed0`` takes a finished run for the first. ``test_kills.py`` does
that to a small row, twenty times.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from run_files import assert_bit_identical, read_lines
from tiny import TOOL

from mgexp.record.files import read_jsonl
from mgexp.record.run_dir import RunDir

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


def start(arguments: list[str], said: Path) -> subprocess.Popen[bytes]:
    """run_net.py in a process of its own."""
    with said.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, str(TOOL), *map(str, arguments)], stdout=file, stderr=file
        )


def kill(arguments: list[str], run: RunDir, moment: Moment, said: Path) -> Hit | None:
    """Starts the run and kills it at the moment; None where it had ended before."""
    process = start(arguments, said)
    try:
        while process.poll() is None and not moment.condition(run):
            time.sleep(0.0005)
        time.sleep(moment.seconds)
        if process.poll() is not None:
            return None
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL
    return where(run)


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
    if not lines:
        return set()
    column = lines[0].split(",").index("start_step")
    return {int(line.split(",")[column]) for line in lines[1:]} - {0}


def milestones_of(run: RunDir) -> set[int]:
    """Steps after which the row is evaluated during training, by the configuration of the run."""
    from mgexp.config.load import load_config
    from mgexp.train.build import schedule_of
    from mgexp.train.milestones import milestones

    cfg = load_config(run.config_yaml)
    num_videos = cfg.DATA.MAX_TRAIN_VIDEOS or len(
        Path(cfg.DATA.TRAIN_LIST).read_text().splitlines()
    )
    return set(milestones(schedule_of(cfg, num_videos), cfg.TRAIN.NUM_EVALUATIONS)[:-1])


def finish(arguments: list[str], said: Path) -> None:
    """Starts the run and lets it end."""
    code = start(arguments, said).wait()
    assert code in (0, 3), said.read_text()


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
    parser.add_argument("--seed", type=int, default=0, help="of the random moment")
    parser.add_argument("--kills", type=int, default=1)
    options, pairs = parser.parse_known_args()
    alone, killed = options.same_as or options.runs / "alone", options.runs / "killed"
    options.runs.mkdir(parents=True, exist_ok=True)
    said = options.runs / "said.txt"
    if not options.same_as:
        finish(["--cfg", options.cfg, "--output", alone, *pairs], said)
    seconds = read_lines(alone / "evaluations.jsonl")[-1]["train_seconds"]
    rng = random.Random(options.seed)
    arguments = ["--cfg", options.cfg, "--output", killed, *pairs]
    for _ in range(options.kills):
        moment = Moment("random", rng.uniform(0, seconds / options.kills))
        print(
            f"{moment.seconds:6.1f} s after the start: {kill(arguments, RunDir(killed), moment, said)}"
        )
    finish(arguments, said)
    assert_same(killed, alone)
    print("bit-identical: weights, statistics, momenta, losses, accuracies")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    main()
