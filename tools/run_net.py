#!/usr/bin/env python3
"""Train, evaluate and judge one row.

    python tools/run_net.py --cfg experiments/quickstart/long.yaml
    python tools/run_net.py --list-keys SOLVER               prints what can be set

Start the same command again to continue a run that stopped. If the run is complete, the command says so.
Exit codes: 0 done; 1 failed; 2 bad configuration or data (all problems of the keys and lists that do not exist, or
else of the data, in one message), or the run folder is in use; 3 an EXPECTED value was missed;
4 interrupted and saved (run the command again to continue).
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mgexp.config.check import cross_problems
from mgexp.config.key_list import listed_keys
from mgexp.config.load import read_config
from mgexp.errors import InputError
from mgexp.launch.resources import LAUNCHERS, add_resource_arguments, read_resources
from mgexp.options import BAD_INPUT, ToolParser, add_import_option, local_folder, run_tool, say
from mgexp.run.files import is_there

if TYPE_CHECKING:
    from mgexp.config.keys import Config
    from mgexp.launch.run import RunOptions


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__, "--cfg YAML [options] [KEY VALUE ...]")
    parser.add_argument("--cfg", type=Path, help="YAML of a row, in experiments/")
    add_import_option(parser)
    parser.add_argument(
        "--list-keys",
        nargs="?",
        const="",
        metavar="SECTION",
        help="print every configuration key, or those of a section such as SOLVER, and exit",
    )
    parser.add_argument("--seed", type=int, help="seed of the run (default: RNG_SEED, 0)")
    parser.add_argument(
        "--output", type=local_folder, help="run folder (default: runs/<experiment>/seed<N>)"
    )
    parser.add_argument(
        "--launcher",
        choices=LAUNCHERS,
        default="here",
        help="here: one process (default); torchrun: torchrun starts this command; "
        "local: background processes of this machine, and wait; slurm: submit a job, and return",
    )
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="run a few steps, with fewer videos and channels; all else is the same",
    )
    parser.add_argument(
        "--override",
        action="store_true",
        help="continue in a run folder although the configuration, the videos or the schedule changed",
    )
    add_resource_arguments(parser)
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY VALUE",
        help="configuration keys, such as SOLVER.BASE_LR 0.1 (see --list-keys)",
    )
    # With "intermixed", KEY VALUE pairs may come before, between and after the options.
    options = parser.parse_intermixed_args(arguments)
    if options.cfg is None and options.list_keys is None:
        parser.error("the following arguments are required: --cfg")
    return options


def read(options: argparse.Namespace) -> RunOptions:
    """Return the options that say what to run, without the options of the launcher."""
    from mgexp.launch.run import RunOptions

    return RunOptions(
        config=options.cfg,
        overrides=tuple(options.overrides),
        seed=options.seed,
        output=options.output,
        is_smoke=options.smoke,
        override=options.override,
    )


def missing_lists(cfg: Config) -> list[str]:
    """Name the lists that do not exist. Those of a fold, and patterns, are looked for later."""
    lists = {key: Path(getattr(cfg.DATA, key)) for key in ("TRAIN_LIST", "VAL_LIST")}
    return [
        f"DATA.{key}: {path.absolute()} does not exist"
        for key, path in lists.items()
        if not re.search(r"[{*?[]", str(path)) and not is_there(path)
    ]


def main(arguments: list[str]) -> int:
    """Run or submit, and turn an error into an exit code and one message."""
    options = parse(arguments)
    if options.list_keys is not None:
        print(listed_keys(options.list_keys))
        return 0
    cfg, problems = read_config(options.cfg, options.overrides)
    problems += missing_lists(cfg)
    if problems:
        say(f"nothing was written; {InputError([*problems, *cross_problems(cfg)])}")
        return BAD_INPUT
    # These import torch, which takes seconds. --help, --list-keys, a wrong key and a missing list do without it.
    from mgexp import dist
    from mgexp.launch.run import run_in_process
    from mgexp.launch.submit import to_local, to_queue

    run = read(options)
    # These problems are reported later, in one message with those of the data.
    resources, problems = read_resources(options)
    if options.launcher == "local":
        return to_local(run, resources, problems, say)
    if options.launcher == "slurm":
        return to_queue(run, resources, problems, say)
    problems += dist.launcher_problems(options.launcher == "torchrun")
    processes = dist.from_environment() if options.launcher == "torchrun" else dist.Processes()
    return run_in_process(run, processes, say, problems=problems)


if __name__ == "__main__":
    sys.exit(run_tool(main))
