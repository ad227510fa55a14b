#!/usr/bin/env python3
"""Show what a model costs at every shape of its schedule.

    python tools/show_model.py --cfg experiments/quickstart/long.yaml

The tool prints parameters, GMACs (fvcore) and the memory of activations, for one clip and for a mini-batch. It
needs no data and no GPU. With --check, it checks instead whether the model runs at every shape and whether its
positions are right there: mgexp/multigrid/shape_check.py. Exit 0; 1 the check found a fault; 2 bad configuration.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

# mgexp comes before torch, because it sets how torch's threads wait.
import mgexp  # noqa: F401

# isort: split
import simplejson
from torch import nn

from mgexp.config.load import read_config
from mgexp.errors import raise_problems
from mgexp.models.build import build_model, build_problems, network_title
from mgexp.models.cost import activation_bytes, count_macs, num_params
from mgexp.multigrid.schedule import Schedule
from mgexp.multigrid.shape_check import ShapeCheck, check_shapes
from mgexp.options import ToolParser, add_import_option, run_tool
from mgexp.plan.measure import build_checked_schedule
from mgexp.text import aligned


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__, "--cfg YAML [options] [KEY VALUE ...]")
    add = parser.add_argument
    add("--cfg", required=True, type=Path, help="YAML of a row, in experiments/")
    add_import_option(parser)
    text = "check the model at every shape; takes seconds to minutes"
    add("--check", action="store_true", help=text)
    add("--json", action="store_true", help="for programs")
    add("overrides", nargs="*", metavar="KEY VALUE", help="configuration keys")
    return parser.parse_intermixed_args(arguments)


def main(arguments: list[str]) -> int:
    """Print a table, or JSON. Return 1 if the check found a fault, and 2 if the configuration is wrong."""
    options = parse(arguments)
    cfg, problems = read_config(options.cfg, options.overrides)
    schedule = build_checked_schedule(cfg, problems, checks_model=not options.check)
    if options.check:
        # The check below reports the shapes. A network that cannot be built has none.
        raise_problems(build_problems(cfg, (), runs_own=False))
    model = build_model(cfg)
    title = network_title(cfg.MODEL.MODEL_NAME, cfg.RESNET.DEPTH)
    name = f"{title}, {cfg.MODEL.NUM_CLASSES} classes"
    if options.check:
        full = (cfg.DATA.NUM_FRAMES, cfg.DATA.TRAIN_CROP_SIZE)
        # Evaluation may have another crop than training.
        shapes = {*schedule.sizes, (cfg.DATA.NUM_FRAMES, cfg.DATA.TEST_CROP_SIZE)}
        checks = check_shapes(model, [*sorted(shapes - {full}), full])
        found = {"model": name, "shapes": [asdict(one) for one in checks]}
        print(simplejson.dumps(found, indent=2) if options.json else check_table(name, checks))
        return int(any(one.problem for one in checks))
    costs = shape_costs(model, schedule)
    found = {"model": name, "params": num_params(model), "shapes": costs}
    print(simplejson.dumps(found, indent=2) if options.json else table(found))
    return 0


def check_table(name: str, checks: Sequence[ShapeCheck]) -> str:
    """Write what the check found as a table for people."""
    rows = [("shape", "attention layers", "positions", "away", "verdict")]
    for one in checks:
        kinds = [kind for kind in dict.fromkeys(one.positions) if kind != "none"]
        shape, layers = f"{one.frames} x {one.crop}²", f"{len(one.positions)}"
        verdict = "WRONG" if one.problem else "right"
        rows.append((shape, layers, " and ".join(kinds) or "none", f"{one.deviation:.0%}", verdict))
    legend = "away: of relative positions, what distance does not explain; of absolute ones, 1 - correlation"
    problems = [f"{one.frames} x {one.crop}²: {one.problem}" for one in checks if one.problem]
    return "\n".join([name, "", aligned(rows), "", *problems, legend])


def shape_costs(model: nn.Module, schedule: Schedule) -> list[dict[str, Any]]:
    """Return what a clip costs at every shape of the schedule, the smallest mini-batches last.

    ``gmacs`` counts the forward pass. ``activation_bytes`` is the memory, in fp32, that it keeps for the backward
    pass. ``clips`` is the number of clips in a mini-batch of the shape.
    """
    shapes = {(s.frames, s.crop): s for phase in schedule.phases for s in phase.cycle.shapes}
    macs = count_macs(model, shapes)
    costs = [
        {
            "frames": frames,
            "crop": crop,
            "clips": shape.clips,
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
        "GMACs: multiply-accumulates of a forward pass; a training step takes about three times that.",
        "MiB, GiB: what backward needs of the forward pass, fp32; an estimate, without weights and workspace.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_tool(main))
