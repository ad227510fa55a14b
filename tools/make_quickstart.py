"""Make a quickstart set: short H.264 videos of 12 or 24 classes, and their lists.

    python tools/make_quickstart.py
    python tools/make_quickstart.py --output /tmp/tiny --num-train 24 --num-val 24
    python tools/make_quickstart.py --set 3    # of experiments/length, into data/quickstart_3

After an interruption, run it again: it keeps the videos that exist. Exit 0: done, 2: bad input, 4: interrupted.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from mgexp.options import local_folder, run_tool
from mgexp.run.environment import num_cores

# The modules that draw and write the videos are beside the rows that train on them.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "experiments" / "quickstart"))
from quickstart_scenes import SETS
from quickstart_videos import make_quickstart

DEFAULT_SET = 2
"""The set of experiments/quickstart."""


def main(arguments: list[str]) -> int:
    """Parse the command line, make the videos, and print how many were made."""
    options = parse(arguments)
    start = time.perf_counter()
    names = ("num_train", "num_val", "seed")
    given = {name: value for name, value in vars(options).items() if name in names}
    video_set = replace(SETS[options.set], **given)
    made = make_quickstart(options.output, video_set, options.processes, progress=True)
    seconds = time.perf_counter() - start
    print(f"{options.output}: {made.num_made} videos made in {seconds:.0f} s, {made.num_kept} kept")
    return 0


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawTextHelpFormatter):
    """Show the defaults of options, and keep the lines of the text above."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = parser.add_argument
    add(
        "--output",
        type=local_folder,
        default=argparse.SUPPRESS,
        help="folder to write to (default: data/quickstart for set 2, data/quickstart_N for another set N)",
    )
    add(
        "--set",
        type=int,
        choices=[*SETS],
        default=DEFAULT_SET,
        help="1: the easier, first set; 2: coarse clips hide a part of the class; 3: they show nearly all;\n"
        "4: as 3, with stripes that coarse clips hide",
    )
    changes = {
        "--num-train": "training videos, in place of the set's",
        "--num-val": "validation videos, in place of the set's",
        "--seed": "seed of all random draws, in place of 0",
    }
    for name, what in changes.items():
        add(name, type=int, default=argparse.SUPPRESS, help=what)
    add("--processes", type=int, default=num_cores(), help="videos made at the same time")
    options = parser.parse_args(arguments)
    if "output" not in options:
        options.output = Path(
            f"data/quickstart{'' if options.set == DEFAULT_SET else f'_{options.set}'}"
        )
    return options


if __name__ == "__main__":
    sys.exit(run_tool(main, "start the same command again to make the rest"))
