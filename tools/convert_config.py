#!/usr/bin/env python3
"""Turn a PySlowFast configuration into an mgexp configuration with the same meaning.

  python tools/convert_config.py configs/Kinetics/SLOWFAST_8x8_R50_stepwise_multigrid.yaml --output row.yaml
  python tools/convert_config.py configs/Kinetics/I3D_8x8_R50.yaml NUM_SHARDS 4     # pairs as PySlowFast has them

The new YAML contains what differs from our defaults. The tool also lists each key that is not kept, with the
reason. Without --output the YAML is printed, and the list goes to stderr. A key that the file leaves out has
PySlowFast's default, which often differs from ours. These have a counterpart: SlowFast, X3D, MViTv2, I3D, C2D
and Slow (the last three also with non-local blocks); the lists of Kinetics, Something-Something V2 and Charades;
SGD and AdamW. Any other value is a problem.
Multigrid phases end at epochs, as in the released code. Remove MULTIGRID.GRANULARITY to let them end at steps.
Before the result is written, it is read back, and its schedule is derived for the same number of GPUs.
TRAIN.PRECISION stays auto (bf16 on GPUs that support it), although PySlowFast computes in fp32.
Exit codes: 0 done; 2 a file or a value cannot be converted (one message with all problems; nothing is written).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from mgexp.config.check import cross_problems
from mgexp.config.load import read_config
from mgexp.convert.conversion import Conversion
from mgexp.convert.pyslowfast import convert, read_pyslowfast
from mgexp.errors import InputError, collected, raise_problems
from mgexp.options import ToolParser, not_new, run_tool, say
from mgexp.run.files import atomic_write_text
from mgexp.train.setup import build_row_schedule

ANY_NUM_VIDEOS = 100_000
"""The number of videos of the schedule that is checked. Phases that end at epochs do not depend on it."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line. KEY VALUE pairs stay text, because the conversion knows their types."""
    parser = ToolParser(__doc__)
    parser.add_argument("input", type=Path, metavar="INPUT", help="YAML of PySlowFast")
    parser.add_argument("--output", type=Path, help="YAML to write (default: print it)")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="keys of PySlowFast")
    return parser.parse_intermixed_args(arguments)


def problems_of(conversion: Conversion) -> list[str]:
    """List the values without a counterpart, and the problems that a run would find in the new YAML."""
    # Read the YAML from a file, so that it passes the same checks as the file of a user.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "converted.yaml"
        path.write_text(conversion.yaml_text(""), encoding="utf-8")
        cfg, problems = read_config(path)
    found = [*conversion.problems, *(one.replace(str(path), "the result") for one in problems)]
    # A key with a problem has our default here. Checks between keys would then report wrong problems.
    if found:
        return found
    found = cross_problems(cfg)
    with collected(found):
        build_row_schedule(cfg, ANY_NUM_VIDEOS, conversion.num_processes)
    return found


def main(arguments: list[str]) -> int:
    """Convert, and say what happened to the keys. Return 2 if the conversion is not possible."""
    options = parse(arguments)
    try:
        raise_problems(not_new({"--output": options.output}))
        conversion = convert(read_pyslowfast(options.input, options.overrides))
        raise_problems(problems_of(conversion))
        text = conversion.yaml_text(
            f"From PySlowFast's {options.input.name}, by tools/convert_config.py."
        )
        if options.output:
            atomic_write_text(options.output, text)
    except (InputError, OSError) as error:
        say(f"nothing was written; {error}")
        return 2
    if not options.output:
        print(text, end="")
    # If the YAML goes to standard output, the list must not be mixed with it.
    print(conversion.report(), file=sys.stdout if options.output else sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(run_tool(main))
