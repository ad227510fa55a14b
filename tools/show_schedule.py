#!/usr/bin/env python3
"""Show the schedule of a row. No data is needed.

    python tools/show_schedule.py --cfg experiments/quickstart/long.yaml

The number of training videos is --num-videos, or else the length of DATA.TRAIN_LIST, or else DATA.NUM_VIDEOS.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import simplejson

from mgexp.config.load import read_config
from mgexp.options import ToolParser, add_import_option, run_tool
from mgexp.plan.measure import build_checked_schedule
from mgexp.run.schedule_table import schedule_json, schedule_table
from mgexp.train.setup import build_num_videos


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__, "--cfg YAML [options] [KEY VALUE ...]")
    parser.add_argument("--cfg", required=True, type=Path, help="YAML of a row, in experiments/")
    add_import_option(parser)
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--num-videos", type=int, help="training videos")
    parser.add_argument("--num-gpus", type=int, default=1, help="processes that share a mini-batch")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="configuration keys")
    return parser.parse_intermixed_args(arguments)


def main(arguments: list[str]) -> int:
    """Print the table, or JSON. Return 2 if the configuration is wrong."""
    options = parse(arguments)
    cfg, problems = read_config(options.cfg, options.overrides)
    num_videos, missing = build_num_videos(cfg, options.num_videos)
    schedule = build_checked_schedule(
        cfg, [*problems, *missing], num_videos, options.num_gpus, checks_model=False
    )
    if options.json:
        print(simplejson.dumps(schedule_json(schedule), indent=2))
    else:
        print(schedule_table(schedule))
    return 0


if __name__ == "__main__":
    sys.exit(run_tool(main))
