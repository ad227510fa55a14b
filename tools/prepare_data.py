#!/usr/bin/env python3
"""Make a clip store: copies of videos in which every frame stands alone, at one or more sizes.

    python tools/prepare_data.py --list train.csv --list val.csv --root videos --store store --short-sides 320 160
    python tools/prepare_data.py ... --plan                  the disk and the time it will take; makes nothing
    python tools/prepare_data.py ... --plan --cfg ROW.yaml   and what loading costs in each phase of that row
    python tools/run_net.py --cfg ROW.yaml DATA.STORE store  trains from it

In an ordinary video a clip of 8 frames costs at least half as much to decode as one of 32, since frames refer to
others. Multigrid training needs up to 16 times as many of these clips. From a store each pays for its own frames.
A clip is read from the smallest copy that is as sharp as it needs: a short side is drawn for each clip (see
DATA.TRAIN_JITTER_SCALES), and the copy must not be below it. So choose the largest short side first, and then some
that the smaller crops can use. A copy is never larger than its video.

Give the same command again after an interruption, or when videos were added or changed: it does what is missing.
Videos that cannot be decoded are listed; they have no copy, so training opens the video itself.
Exit 0; 1 failed, such as on a full disk; 2 bad input; 4 interrupted, run again to go on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from mgexp.config.check import cross_problems
from mgexp.config.load import read_config
from mgexp.data.build import build_training_clips
from mgexp.data.files import Root
from mgexp.data.opening import open_source
from mgexp.data.records import VideoRecord, read_list
from mgexp.data.store import StoreDir
from mgexp.data.store_encode import DEFAULT_QUANTIZER, Coding
from mgexp.data.store_fill import Filled, Order, StoreError, fill_store
from mgexp.data.store_open import StoreIndex
from mgexp.data.store_plan import Estimate, Sample, disk_table, estimate, sample_store
from mgexp.errors import InputError, listed
from mgexp.plan.loading import kinds_of, legs_of
from mgexp.plan.loading_table import LoadingCosts, clip_table, way_table
from mgexp.plan.measure import loader_of, measure
from mgexp.train.build import try_schedule
from mgexp.train.inputs import raise_problems

REPEATS = 3
"""Of each measurement of the plan. Assumption: enough to see how steady it is."""
ANY_LABEL = 10**18
"""Labels do not matter here."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line; KEY VALUE pairs stay as text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--list",
        required=True,
        type=Path,
        action="append",
        dest="lists",
        metavar="FILE",
        help="'path label' line per video; repeat for more lists, the training list first",
    )
    add(
        "--root",
        required=True,
        type=Path,
        help="folder that the paths are relative to (DATA.PATH_PREFIX)",
    )
    add("--store", required=True, type=Path, help="folder of the store (DATA.STORE)")
    add(
        "--short-sides",
        type=int,
        nargs="+",
        default=[320, 160],
        metavar="PIXELS",
        help="short side of each copy, even numbers (default: 320 160)",
    )
    add(
        "--quantizer",
        type=int,
        default=DEFAULT_QUANTIZER,
        help=f"of MPEG-2, 1 (best) to 31 (smallest files); default: {DEFAULT_QUANTIZER}",
    )
    add(
        "--processes",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="videos encoded at the same time (default: one for each core)",
    )
    add(
        "--hash",
        action="store_true",
        help="keep a hash of each video too: one that was copied and only looks newer is not done again",
    )
    add(
        "--separator",
        default=" ",
        help="between path and label (DATA.PATH_LABEL_SEPARATOR; default: a space)",
    )
    add(
        "--plan",
        action="store_true",
        help="encode a sample of 8 videos and say what the store will take",
    )
    add("--cfg", type=Path, help="with --plan: YAML of a row, for what loading its clips will cost")
    add("overrides", nargs="*", metavar="KEY VALUE", help="with --cfg: configuration keys")
    return parser.parse_intermixed_args(arguments)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Fills the store, or prints the plan, and turns an error into an exit code and one message."""
    options = parse(arguments)
    try:
        lists, order = read_lists(options), order_of(options)
        if options.plan:
            print(plan(options, lists, order))
            return 0
        paths = list(dict.fromkeys(path for one in lists for path in one))
        filled = fill_store(StoreDir(options.store), order, paths, options.processes, progress=True)
    except InputError as error:
        print(f"prepare_data.py: {error}", file=sys.stderr)
        return 2
    except (StoreError, OSError) as error:
        print(f"prepare_data.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "prepare_data.py: interrupted; the same command goes on with the rest", file=sys.stderr
        )
        return 4
    print(summary(options.store, filled))
    return 0


def order_of(options: argparse.Namespace) -> Order:
    """What the store is to hold."""
    coding = Coding(options.quantizer)
    return Order(options.root, tuple(options.short_sides), coding, options.hash)


def read_lists(options: argparse.Namespace) -> list[list[str]]:
    """Paths of each list, relative to the root; missing files too, which then fail. Raises InputError."""
    found = [read_list(path, options.root, ANY_LABEL, options.separator) for path in options.lists]
    raise_problems([problem for one in found for problem in one.problems])
    root = Root(options.root)
    absolute = [[*(record.path for record in one.records), *one.missing] for one in found]
    return [[root.relative(path) or path for path in paths] for paths in absolute]


def summary(store: Path, filled: Filled) -> str:
    """What was done, with every video that has no copy."""
    lines = [
        f"{store}: {filled.num_copied} videos copied, {filled.num_kept} kept, "
        f"{len(filled.failures)} without a copy"
    ]
    return "\n".join([*lines, *(f"  {path}: {reason}" for path, reason in filled.failures)])


def plan(options: argparse.Namespace, lists: Sequence[Sequence[str]], order: Order) -> str:
    """The tables of --plan."""
    if options.cfg is None and options.overrides:
        raise InputError(
            [f"{options.overrides[0]}: KEY VALUE pairs are for --cfg, which is not given"]
        )
    existing = [path for one in lists for path in one if (order.root / path).is_file()]
    paths = list(dict.fromkeys(existing))
    if not paths:
        raise InputError([f"none of the listed videos is in {order.root}: correct --root"])
    with sample_store(order, paths) as sample:
        found = estimate(order, paths, sample)
        texts = [disk_table(found, options.processes, free_bytes(options.store)), failures(found)]
        if options.cfg is not None:
            texts.append(loading(options, len(lists[0]), order, sample))
    return "\n".join(text for text in texts if text)


def free_bytes(store: Path) -> int:
    """Bytes free on the disk that the store will be on."""
    there = next(
        folder for folder in (store.absolute(), *store.absolute().parents) if folder.exists()
    )
    return shutil.disk_usage(there).free


def failures(found: Estimate) -> str:
    """The sampled videos that cannot be copied."""
    if not found.failures:
        return ""
    names = [f"{path} ({reason})" for path, reason in found.failures]
    return f"{len(names)} of {found.num_sampled} sampled videos cannot be copied: {listed(names)}"


def loading(options: argparse.Namespace, num_videos: int, order: Order, sample: Sample) -> str:
    """What the clips of a row cost, from the videos and from the store."""
    cfg, problems = read_config(options.cfg, options.overrides)
    schedule, found = try_schedule(cfg, num_videos, num_processes=1)
    raise_problems([*problems, *cross_problems(cfg), *found])
    assert schedule is not None  # it had no problem
    root = Root(order.root).folder
    records = [VideoRecord(str(Path(root, video.path)), 0) for video in sample.copied]
    openers = {"videos": open_source, "store": StoreIndex(sample.store, order.root)}
    ways = {
        name: loader_of(build_training_clips(cfg, records, opener))
        for name, opener in openers.items()
    }
    legs = legs_of(schedule)
    costs = LoadingCosts(legs, measure(ways, kinds_of(legs), len(records), REPEATS, progress=True))
    return f"loading the clips of this schedule, on one core\n{clip_table(costs)}\n\n{way_table(costs)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
