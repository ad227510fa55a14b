#!/usr/bin/env python3
"""Check an installation, a machine and a row, and whether the row is likely to be as accurate as its baseline.

    python tools/doctor.py                                     versions, GPU, disk, other programs
    python tools/doctor.py --cfg ROW.yaml [KEY VALUE ...]      also: precision and number of steps of that row
    python tools/doctor.py --cfg ROW.yaml --run BASELINE       also: is the row likely to be as accurate?

With --cfg, the tool compares every shape in TRAIN.PRECISION with fp32, even if an earlier check passed. With
--run, it compares the steps of the row with those after which the finished baseline has begun to learn.
tools/plan.py predicts the seconds. Exit 0: all is well, or warnings only; 3 a problem was found; 2 bad input, or a
package is missing; 4 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from mgexp.errors import InputError

try:
    import simplejson

    from mgexp.options import ToolParser, add_import_option, run_tool
    from mgexp.plan.doctor import Finding, machine_findings
except ModuleNotFoundError as error:
    remedy = "install mgexp with all it needs: pip install -e . (see INSTALL.md)"
    print(f"doctor.py: the package {error.name} is missing: {remedy}", file=sys.stderr)
    sys.exit(2)

NAME_WIDTH = 24
"""Characters of the column of names."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__, "[--cfg YAML [KEY VALUE ...]] [options]")
    parser.add_argument("--cfg", type=Path, help="YAML of a row, in experiments/")
    add_import_option(parser)
    parser.add_argument("--run", type=Path, help="run folder of the finished baseline of --cfg")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="configuration keys")
    return parser.parse_intermixed_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    findings: list[Finding] = []

    def note(measured: Iterable[Finding]) -> None:
        # Some take minutes, so each is shown as soon as it is known.
        for finding in measured:
            findings.append(finding)
            if not options.json:
                print(as_text(finding), flush=True)

    try:
        if (options.overrides or options.run) and not options.cfg:
            raise InputError(["KEY VALUE pairs and --run need --cfg"])
        # Read the row first, so that bad input is reported before the machine is measured.
        row = None
        if options.cfg:
            # This needs torchvision, which may be broken. Without --cfg, the doctor must work in that case too.
            from mgexp.plan.measure import build_row_here

            row = build_row_here(options.cfg, options.overrides)
        losses = None
        if options.run:
            from mgexp.plan.advice import read_losses

            losses = read_losses(options.run)
        note(machine_findings())
        if row is not None:
            from mgexp.plan import advice

            cfg, schedule = row
            note([advice.steps_finding(schedule)])
            if losses is not None:
                takeoff = advice.takeoff_step(losses)
                note([advice.takeoff_finding(schedule.total_steps, takeoff)])
            note(advice.build_precision_findings(cfg, schedule))
    except ImportError as error:
        # The usual cause is a torchvision that does not fit torch. The findings on the machine then name the
        # remedy.
        note(() if findings else machine_findings())
        note([Finding("row", "problem", str(error), "see INSTALL.md")])
    has_problem = any(finding.status == "problem" for finding in findings)
    if options.json:
        record = {"problems": has_problem, "findings": [asdict(one) for one in findings]}
        print(simplejson.dumps(record, indent=2, ignore_nan=True))
    return 3 if has_problem else 0


def as_text(finding: Finding) -> str:
    """Write a finding as a line, and its remedy on a second line."""
    line = f"{finding.status:8} {finding.name:{NAME_WIDTH}}  {finding.text}"
    remedy = f"\n{'':8} {'':{NAME_WIDTH}}  → {finding.remedy}" if finding.remedy else ""
    return line + remedy


if __name__ == "__main__":
    sys.exit(run_tool(main))
