#!/usr/bin/env python3
"""Show what a model costs at every shape of its schedule: python tools/show_model.py --cfg experiments/….yaml

The tool prints parameters, GMACs (fvcore) and the memory of activations, for one clip and for a mini-batch. It
needs no data and no GPU.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import simplejson
from torch import nn

from mgexp.config.load import read_config
from mgexp.errors import InputError
from mgexp.models.build import build_model
from mgexp.models.cost import activation_bytes, macs_by_shape, num_params
from mgexp.multigrid.schedule import Schedule
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
    costs = shape_costs(model, schedule)
    found = {"model": name, "params": num_params(model), "shapes": costs}
    print(simplejson.dumps(found, indent=2) if options.json else table(found))
    return 0


def shape_costs(model: nn.Module, schedule: Schedule) -> list[dict[str, Any]]:
    """Return what a clip costs at every shape of the schedule, the smallest mini-batches last.

    ``gmacs`` counts the forward pass. ``activation_bytes`` is the memory, in fp32, that it keeps for the backward
    pass. ``clips`` is the number of clips in a mini-batch of the shape.
    """
    shapes = {(s.frames, s.crop): s for phase in schedule.phases for s in phase.cycle.shapes}
    macs = macs_by_shape(model, shapes)
    costs = [
        {
            "frames": frames,
            "crop": crop,
            "clips": schedule.recipe.clips * shape.ratio,
            "gmacs": macs[frames, crop] / 1e9,
            "activation_bytes": activation_bytes(model, frames, crop),
        }
        for (frames, crop), shape in shapes.items()
    ]
    return sorted(costs, key=lambda cost: (-cost["clips"], cost["frames"]))


def table(found: dict[str, Any]) -> str:
    """Write the model and its costs as a table for people."""
    lines = [
        f"{found['model']}: {found['params']:,} parameters",
        "",
        "           one clip                          a mini-batch",
        "   frames x pixels²      GMACs        MiB      clips      GMACs        GiB",
    ]
    for cost in found["shapes"]:
        clips, gmacs, kept = cost["clips"], cost["gmacs"], cost["activation_bytes"] / 2**20
        lines.append(
            f"   {cost['frames']:6d} x {cost['crop']:d}²".ljust(23)
            + f"{gmacs:9.3f}  {kept:9.1f}  {clips:9d}  {gmacs * clips:9.1f}  {kept * clips / 1024:9.2f}"
        )
    lines += [
        "",
        "GMACs: multiply-accumulates of a forward pass, by fvcore; a training step takes about three times that.",
        "MiB, GiB: what backward needs of the forward pass, fp32; an estimate, without weights and workspace.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
