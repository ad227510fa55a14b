#!/usr/bin/env python3
"""Make a clip store: copies of videos in which every frame is coded by itself, at one or more sizes.

    python tools/prepare_data.py --cfg ROW.yaml --short-sides 320 160 --store store DATA.TRAIN_LIST train.json \\
        DATA.VAL_LIST validation.json DATA.CLASSES labels.json DATA.FORMAT ssv2 DATA.PATH_PREFIX videos
    python tools/prepare_data.py ... --plan                  predicts disk space and time; makes nothing
    python tools/run_net.py --cfg ROW.yaml DATA.STORE store  trains from it

Start the same command again after an interruption, or after you added or changed videos: it makes what is missing.
It lists the videos that cannot be decoded. They get no copy, so training opens the video itself.
Exit codes: 0 done; 1 failed, for example on a full disk; 2 bad input; 4 interrupted (run it again to continue).

In detail:
If a video is gone, or cannot be read now, the copies that it has already stay. A video that crashes or hangs its
decoder is listed too.

A row has the videos of DATA.TRAIN_LIST and DATA.VAL_LIST, in any DATA.FORMAT, without the videos of
DATA.QUARANTINE. One of the two lists may be empty. A folder of numbered images is a video too.

In an ordinary video most frames need other frames. So a clip of 8 frames costs 72 to 96 % as much to decode as a
clip of 32 frames, depending on the decoder. Multigrid training needs up to 16 times as many of these clips. From a
store, a clip pays only for its own frames.

Each clip is read from the smallest copy that is sharp enough: a short side is drawn for the clip (see
DATA.TRAIN_JITTER_SCALES), and the copy must have at least this size. So choose the largest short side first, and
then some for the smaller crops. A copy is never larger than its video.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from mgexp.config.keys import Config
from mgexp.config.load import read_config
from mgexp.data.lists import read_listing
from mgexp.errors import InputError, listed, raise_problems
from mgexp.options import ToolParser, add_import_option, local_folder, run_tool, say, too_small
from mgexp.plan.doctor import nearest_existing
from mgexp.run.environment import num_cores
from mgexp.text import counted, duration, escaped
from mgexp.train.setup import build_sizes
from mgexp.video.paths import Root, evenly_spaced
from mgexp.video.processes import CANNOT_START
from mgexp.video.store import StoreDir, StoredVideo, stamp_of
from mgexp.video.store_encode import DEFAULT_QUANTIZER
from mgexp.video.store_fill import LIMIT_SECONDS, Filled, Order, copy_video, fill_store

NUM_SAMPLED = 8
"""Number of videos in a sample. Assumption: enough for a mean, and few enough to encode in a minute."""
LEVEL_SHARES = (1.0, 0.7, 0.5)
"""Short sides of a clip store relative to its largest, as 320, 224 and 160 for Kinetics: each is the full crop or
half of the sides above it. Assumption."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__, "--cfg YAML --store DIR [options] [KEY VALUE ...]")
    add = parser.add_argument
    add("--cfg", required=True, type=Path, help="YAML of a row, for its videos")
    add_import_option(parser)
    add("--store", required=True, type=local_folder, help="folder of the store (DATA.STORE)")
    text = "short side of each copy, even numbers (default: those that the clips of the row are read from)"
    add("--short-sides", type=int, nargs="+", metavar="PIXELS", help=text)
    text = "encode a sample of 8 videos, and predict disk space and time of the store"
    add("--plan", action="store_true", help=text)
    rare = parser.add_argument_group("encoding the copies").add_argument
    text = f"quality of MPEG-2, from 1 (best) to 31 (smallest files); default: {DEFAULT_QUANTIZER}"
    rare("--quantizer", type=int, default=DEFAULT_QUANTIZER, help=text)
    text = "videos encoded at the same time (default: one for each core)"
    rare("--processes", type=int, default=num_cores(), help=text)
    text = "give a video up that takes longer; 0 for no limit (default: 3,600)"
    rare("--time-limit", type=seconds, default=LIMIT_SECONDS, metavar="SECONDS", help=text)
    add("overrides", nargs="*", metavar="KEY VALUE", help="configuration keys")
    return parser.parse_with_pairs(arguments)


def seconds(text: str) -> float:
    """Read the number of --time-limit."""
    limit = float(text)
    if not 0 <= limit < 10**6:
        raise argparse.ArgumentTypeError(f"{text}: give seconds, or 0 for no limit")
    return limit


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    raise_problems(too_small({"--processes": options.processes}))
    listing = read_listing(options.cfg, options.overrides)
    if not listing.existing:
        raise InputError([f"none of the {len(listing.paths)} listed videos exists"])
    order, root = order_of(options, listing.root), Root(listing.root)
    if options.plan:
        print(plan(options, [*map(root.name, listing.existing)], order))
        return 0
    paths = [*map(root.name, listing.paths)]
    how = (options.processes, True, options.time_limit)
    try:
        filled = fill_store(StoreDir(options.store), order, paths, *how)
    except BrokenProcessPool:
        say(f"{options.store}: {CANNOT_START}")
        return 1
    print(summary(options.store, filled))
    return 0


def order_of(options: argparse.Namespace, root: Path) -> Order:
    """Return what the store will hold, and say so if the row decides it."""
    sides = options.short_sides
    if sides is None:
        cfg, problems = read_config(options.cfg, options.overrides)
        raise_problems(problems)
        sides = store_levels(cfg)
        pixels = " ".join(map(str, sides))
        say(f"short sides {pixels}, from the shapes of the row")
    return Order(root, tuple(sides), options.quantizer)


def store_levels(cfg: Config) -> tuple[int, ...]:
    """Return the short sides of a clip store from which the row's clips can be read, largest first, even numbers.

    The largest is the largest short side that training draws or evaluation needs. Smaller ones are left out if no
    clip of the row can be read from them.
    """
    data, sizes = cfg.DATA, build_sizes(cfg)
    least, largest = data.TRAIN_JITTER_SCALES
    top = max(largest, data.TEST_CROP_SIZE)
    shares = [crop / data.TRAIN_CROP_SIZE for _, crop in sizes]
    # A store has no copies of fewer than 16 pixels.
    if data.TRAIN_JITTER_SCALES_RELATIVE:
        # All clips of one crop are read from one copy: see ``RelativeCrop``.
        sides = [top, *(max(16, largest * share) for share in shares)]
    else:
        # The least short side of a clip is in proportion to its crop. A copy below it is never sharp enough.
        needed = max(16, least * min(shares))
        sides = [share * top for share in LEVEL_SHARES if share * top >= needed]
    return tuple(sorted({2 * math.ceil(side / 2) for side in sides}, reverse=True))


def summary(store: Path, filled: Filled) -> str:
    """Say how many videos were copied and kept, and list every video that lacks a copy."""
    copied = f"{counted(filled.num_copied, 'video')} copied, {filled.num_kept} kept"
    lines = [f"{store}: {copied}, {len(filled.failures)} lacking a copy"]
    lines += [f"  {path}: {escaped(reason)}" for path, reason in filled.failures]
    return "\n".join(lines)


def plan(options: argparse.Namespace, names: Sequence[str], order: Order) -> str:
    """Return the table of --plan for the videos ``names``, and what could not be copied."""
    videos, encode_seconds = sample_store(order, names)
    free_bytes = shutil.disk_usage(nearest_existing(options.store)).free
    table = disk_table(order, names, videos, encode_seconds, options.processes, free_bytes)
    failed = [f"{video.path} ({video.failure})" for video in videos if video.failure]
    if not failed:
        return table
    num = f"{len(failed)} of {len(videos)}"
    return f"{table}\n{num} sampled videos cannot be copied: {listed(failed)}"


def sample_store(order: Order, paths: Sequence[str]) -> tuple[Sequence[StoredVideo], float]:
    """Copy evenly spaced videos into a temporary folder. Return them, and the seconds that one process took.

    Raises InputError if none can be copied.
    """
    with tempfile.TemporaryDirectory(prefix="store_plan_") as folder:
        store, chosen = StoreDir(Path(folder)), evenly_spaced(paths, NUM_SAMPLED)
        start = time.perf_counter()
        videos = tuple(copy_video(store, order, (path, order.levels)) for path in chosen)
        encode_seconds = time.perf_counter() - start
    if all(video.failure for video in videos):
        reasons = [f"{video.path}: {video.failure}" for video in videos]
        raise InputError(["none of the sample can be copied, so there is no plan", *reasons])
    return videos, encode_seconds


def disk_table(
    order: Order,
    paths: Sequence[str],
    videos: Sequence[StoredVideo],
    encode_seconds: float,
    num_processes: int,
    free_bytes: int,
) -> str:
    """Estimate the bytes of each level and the time to encode all videos, in proportion to their bytes.

    ``videos`` is a sample that one process copied in ``encode_seconds``. Say if the store does not fit into
    ``free_bytes``. Raises OSError if a video vanishes meanwhile.
    """
    copied = [video for video in videos if not video.failure]
    source_bytes = sum(stamp_of(str(order.root / path)).size_bytes for path in paths)
    share = source_bytes / sum(video.stamp.size_bytes for video in copied)
    level_bytes = {}
    for level in sorted(set(order.levels), reverse=True):
        copies = [video.levels[level] for video in copied if level in video.levels]
        level_bytes[level] = round(sum(copy.size_bytes for copy in copies) * share)
    total_bytes = sum(level_bytes.values())
    rows = [
        ("videos", source_bytes),
        *((f"short side {level}", size) for level, size in level_bytes.items()),
        ("store in all", total_bytes),
    ]
    seconds = encode_seconds * share / num_processes
    lines = [
        f"{len(paths)} videos, from a sample of {len(videos)}:",
        *(f"  {name:<16} {size / 10**9:10.3f} GB" for name, size in rows),
        f"  encoding takes about {duration(seconds)} with {num_processes} processes",
    ]
    if total_bytes > free_bytes:
        lines.append(f"  it does not fit: {free_bytes / 10**9:.3f} GB are free there")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_tool(main, "start the same command again to make the rest"))
