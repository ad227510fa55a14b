#!/usr/bin/env python3
"""Show what a model costs at every shape of its schedule: python tools/show_model.py --cfg experiments/….yaml

Prints parameters, GMACs (fvcore) and the memory of activations, for one clip and for a mini-batch. Needs no data
and no GPU.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import simplejson

from mgexp.config.load import read_config
from mgexp.errors import InputError
from mgexp.models.build import build_model
from mgexp.models.cost import model_json, model_table
from mgexp.plan.measure import build_shapes


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line. KEY VALUE pairs stay text, because the configuration knows their types."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cfg", required=True, type=Path, help="YAML of a row, in experiments/")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE")
    return parser.parse_intermixed_args(arguments)


def main(arguments: list[str]) -> int:
    """Print the table, or JSON. Return 2 if the configuration is wrong."""
    options = parse(arguments)
    try:
        cfg, problems = read_config(options.cfg, options.overrides)
        schedule = build_shapes(cfg, problems)
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
