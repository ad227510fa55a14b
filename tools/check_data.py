#!/usr/bin/env python3
"""Decode every video of a row, and say which ones training cannot use.

  python tools/check_data.py --cfg ROW.yaml --output runs/check_my DATA.TRAIN_LIST train.json \\
      DATA.VAL_LIST validation.json DATA.CLASSES labels.json DATA.FORMAT ssv2 DATA.PATH_PREFIX videos

A row has the videos of DATA.TRAIN_LIST and DATA.VAL_LIST, in any DATA.FORMAT. One of the two lists may be empty.
A video may be a file or a folder of numbered images.
Videos in DATA.QUARANTINE are checked again, so that the new quarantine is complete. Videos that are gone and have
copies in DATA.STORE are left out.

The tool writes OUTPUT/videos.jsonl, one line per video, while it works. At the end it writes
OUTPUT/quarantine.txt, one path per line. Training leaves these videos out with DATA.QUARANTINE
OUTPUT/quarantine.txt. Start the same command again to continue; it checks files again that changed, or
that were missing or did not open. If decoding a file hangs, it is stopped after --time-limit.
Exit codes: 0 all videos can be used; 2 bad input; 3 some videos cannot be used; 4 interrupted (run it again).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import simplejson

from mgexp.data.lists import read_listing
from mgexp.errors import raise_problems
from mgexp.options import (
    ToolParser,
    add_import_option,
    local_folder,
    not_positive,
    run_tool,
    say,
    too_small,
)
from mgexp.run.environment import num_cores
from mgexp.run.folder import CheckDir
from mgexp.text import counted
from mgexp.video.check_log import check_in_folder


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__, "--cfg YAML --output DIR [options] [KEY VALUE ...]")
    add = parser.add_argument
    add("overrides", nargs="*", metavar="KEY VALUE", help="configuration keys")
    add("--cfg", required=True, type=Path, help="YAML of a row, whose videos are checked")
    add_import_option(parser)
    add("--output", required=True, type=local_folder, help="folder for the results")
    add("--quick", action="store_true", help="decode the first and the last second only")
    add(
        "--processes",
        type=int,
        default=num_cores(),
        help="videos checked at the same time (default: all cores)",
    )
    add("--time-limit", type=float, default=120.0, help="seconds for one video (default: 120)")
    add("--json", action="store_true", help="print the summary as JSON")
    return parser.parse_intermixed_args(arguments)


def main(arguments: list[str]) -> int:
    """Check and print. Return 3 if some videos cannot be used."""
    options = parse(arguments)
    folder = CheckDir(options.output)
    how = (options.quick, options.processes, options.time_limit)
    problems = too_small({"--processes": options.processes})
    raise_problems([*problems, *not_positive({"--time-limit": options.time_limit})])
    listing = read_listing(options.cfg, options.overrides, ["DATA.QUARANTINE", ""])
    # A list counts such a video as existing if DATA.STORE has copies of it.
    gone = {path for path in listing.existing if not Path(path).exists()}
    if gone:
        say(
            f"{counted(len(gone), 'video is', 'videos are')} gone and not checked: DATA.STORE has copies"
        )
    paths = [path for path in listing.paths if path not in gone]
    summary = check_in_folder(folder, paths, listing.root, *how)
    if options.json:
        files = {"videos": str(folder.videos_jsonl), "quarantine": str(folder.quarantine_txt)}
        print(simplejson.dumps({**summary.as_json(), **files}, indent=2))
    else:
        print(summary.as_text())
        print(f"lines: {folder.videos_jsonl}   quarantine: {folder.quarantine_txt}")
    return 3 if summary.num_unusable else 0


if __name__ == "__main__":
    sys.exit(run_tool(main, "start the same command again to check the rest"))
