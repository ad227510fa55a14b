#!/usr/bin/env python3
"""Show what a model costs at every shape of its schedule: python tools/show_model.py --cfg experiments/….yaml

Parameters, GMACs (fvcore) and memory for activations, of one clip and of a mini-batch. Needs no data and no GPU.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import simplejson

from mgexp.config.check import cross_problems
from mgexp.config.load import read_config
from mgexp.errors import InputError
from mgexp.models.build import build_model, model_problems
from mgexp.record.flops import schedule_shapes
from mgexp.record.model_table import model_json, model_table
from mgexp.train.build import try_schedule
from mgexp.train.inputs import raise_problems

NUM_VIDEOS = 10**6
"""Any number gives the same shapes, if it is large enough for a step of each."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line; KEY VALUE pairs stay as text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cfg", required=True, type=Path, help="YAML of a row, in experiments/")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE")
    return parser.parse_intermixed_args(arguments)


def main(arguments: list[str]) -> int:
    """Prints the table, or JSON; 2 where the configuration is wrong."""
    options = parse(arguments)
    try:
        cfg, problems = read_config(options.cfg, options.overrides)
        schedule, found = try_schedule(cfg, NUM_VIDEOS, num_processes=1)
        raise_problems([*problems, *cross_problems(cfg), *found])
        assert schedule is not None  # it had no problem
        raise_problems(model_problems(cfg, schedule_shapes(schedule)))
    except InputError as error:
        print(f"show_model.py: {error}", file=sys.stderr)
        return 2
    model = build_model(cfg)
    name = f"{cfg.MODEL.MODEL_NAME}, depth {cfg.RESNET.DEPTH}, {cfg.MODEL.NUM_CLASSES} classes"
    shown = (model_json if options.json else model_table)(name, model, schedule)
    print(simplejson.dumps(shown, indent=2) if options.json else shown)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
