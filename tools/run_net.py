#!/usr/bin/env python3
"""Train, evaluate and judge one row: python tools/run_net.py --cfg experiments/quickstart/long_short.yaml

Starting the same command again goes on where it stopped, or says that the run is complete.
Exit codes: 0 done, 1 failed, 2 bad configuration or data (one message with all problems) or a run folder
in use, 3 an EXPECTED was missed, 4 interrupted and saved (run again to go on).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from mgexp import dist
from mgexp.config.load import experiment_name, read_config
from mgexp.config.smoke import smoke
from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError
from mgexp.plan.auto.build import with_workers
from mgexp.record.run_dir import RunDir, default_run_dir
from mgexp.stop import Interrupted, StopRequest
from mgexp.train.build import build_inputs, try_initial_weights
from mgexp.train.job import Job, evaluate_job, run_job
from mgexp.train.result import Outcome


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line; KEY VALUE pairs stay as text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cfg", required=True, type=Path, help="YAML of a row, in experiments/")
    parser.add_argument("--seed", type=int, help="seed of the run (default: RNG_SEED, 0)")
    parser.add_argument(
        "--output", type=Path, help="run folder (default: runs/<experiment>/seed<N>)"
    )
    parser.add_argument(
        "--launcher",
        choices=("here", "torchrun"),
        default="here",
        help="here: one process (default); torchrun: this command was started by torchrun",
    )
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="a run of a few steps: fewer videos, steps and channels, all else the same",
    )
    parser.add_argument(
        "--max-clips-per-gpu",
        type=int,
        metavar="N",
        help="for small memories: clips that go through the network at once (TRAIN.MAX_CLIPS_PER_GPU)",
    )
    parser.add_argument(
        "--override",
        action="store_true",
        help="go on in a run folder although the configuration, the videos or the schedule changed",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY VALUE",
        help="configuration keys, such as SOLVER.BASE_LR 0.1 (all: mgexp/config/defaults.py)",
    )
    return parser.parse_intermixed_args(arguments)


def make_job(options: argparse.Namespace) -> Job:
    """Reads and checks everything; raises InputError before a file is written."""
    seed = [] if options.seed is None else ["RNG_SEED", str(options.seed)]
    limit = options.max_clips_per_gpu
    limited = [] if limit is None else ["TRAIN.MAX_CLIPS_PER_GPU", str(limit)]
    whole, problems = read_config(options.cfg, options.overrides, [*seed, *limited])
    cfg = smoke(whole) if options.smoke else whole
    processes = dist.from_environment() if options.launcher == "torchrun" else Processes()
    experiment = experiment_name(options.cfg)
    default = default_run_dir(experiment, cfg.RNG_SEED, options.smoke)
    run_dir = RunDir(options.output) if options.output else default
    initial, found = try_initial_weights(whole, run_dir)
    if options.smoke:
        initial = None  # they fit all channels; that they do was worth knowing
    inputs = build_inputs(cfg, [*problems, *found], processes.count, processes.local_count)
    job = Job(cfg, experiment, run_dir, inputs, processes, options.override, initial)
    return replace(job, cfg=with_workers(cfg, inputs, processes, job.device))


def main(arguments: list[str]) -> Outcome:
    """Runs, and turns an error into an exit code and one message."""
    options = parse(arguments)
    stop, job = StopRequest(), None
    try:
        with stop.listening():
            with stop.at_once():
                job = replace(make_job(options), stop=stop)
            return run_job(job) if job.cfg.TRAIN.ENABLE else evaluate_job(job)
    except InputError as error:
        nothing = "" if job else "nothing was written; "
        print(f"run_net.py: {nothing}{error}", file=sys.stderr)
        return Outcome.BAD_INPUT
    except TrainingError as error:
        print(f"run_net.py: {error}", file=sys.stderr)
        return Outcome.FAILED
    except Interrupted as error:
        print(f"run_net.py: {error}: start again to go on", file=sys.stderr)
        return Outcome.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
