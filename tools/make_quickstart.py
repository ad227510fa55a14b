"""Make the quickstart set: short H.264 videos of 12 classes, and their lists.

    python tools/make_quickstart.py
    python tools/make_quickstart.py --output /tmp/tiny --num-train 24 --num-val 24

Run it again after an interruption: videos that are there are kept. Exit 0, 2 for bad input, 4 interrupted.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from mgexp.errors import InputError
from mgexp.run.environment import num_cores
from mgexp.studies.quickstart import make_quickstart
from mgexp.studies.quickstart_scenes import QuickstartOptions


def main() -> int:
    """Parse, make, print."""
    arguments = parse_arguments()
    start = time.perf_counter()
    try:
        options = QuickstartOptions(arguments.num_train, arguments.num_val, arguments.seed)
        made = make_quickstart(arguments.output, options, arguments.processes, progress=True)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: run the same command again to make the rest", file=sys.stderr)
        return 4
    seconds = time.perf_counter() - start
    print(
        f"{arguments.output}: {made.num_made} videos made in {seconds:.0f} s, {made.num_kept} kept"
    )
    return 0


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--output", type=Path, default=Path("data/quickstart"), help="folder")
    defaults = QuickstartOptions()
    parser.add_argument("--num-train", type=int, default=defaults.num_train, help="videos")
    parser.add_argument("--num-val", type=int, default=defaults.num_val, help="videos")
    parser.add_argument("--seed", type=int, default=defaults.seed, help="of all draws")
    parser.add_argument("--processes", type=int, default=num_cores(), help="at the same time")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
