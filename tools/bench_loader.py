#!/usr/bin/env python3
"""Measure what loading the clips of a row costs on this machine, phase by phase.

    python tools/bench_loader.py --cfg ROW.yaml DATA.TRAIN_LIST train.csv DATA.PATH_PREFIX videos DATA.STORE store
    python tools/bench_loader.py --cfg ROW.yaml --make-videos runs/bench_videos     makes videos and a store first

One process on one core, as a loader worker is, times the same clips in several ways, in turns: from the videos and
from the clip store (DATA.STORE, if it is set), by each decoder that works here, and by pytorchvideo's
LabeledVideoDataset. The first way, the videos by PyAV, is what training does by default. Handing a batch on
from a worker is not in it. With --steps-per-second, such as training makes when it does not wait, the last table
says how many cores keep up (DATA_LOADER.NUM_WORKERS): compute takes about as long for a step of every phase.
Close other programs first. Exit 0; 1 failed, such as on a video; 2 bad input; 4 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import simplejson

from mgexp.config.check import cross_problems
from mgexp.config.keys import Config
from mgexp.config.load import read_config
from mgexp.data.lists import build_list, videos_root
from mgexp.data.loader import build_opener, build_training_clips, store_problems
from mgexp.data.records import Record
from mgexp.errors import InputError, collected, raise_problems
from mgexp.options import add_measuring_options, not_positive, too_small, without_folder
from mgexp.plan.loading import (
    Load,
    LoadingCosts,
    build_loads,
    kinds_of,
    legs_of,
    measure,
    one_core,
)
from mgexp.plan.tables import clip_table, costs_json, demand_table, step_table, way_table
from mgexp.run.environment import describe
from mgexp.run.files import write_json
from mgexp.train.setup import build_num_videos, build_row_schedule
from mgexp.video.paths import evenly_spaced
from mgexp.video.reader import Decoder, Opener, VideoError, choose_decoder
from mgexp.video.store import StoreDir, StoreIndex
from mgexp.video.store_fill import StoreError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from bench_videos import make_bench_videos
from opponent import LabeledVideos


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line; KEY VALUE pairs stay as text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_measuring_options(parser)
    add = parser.add_argument
    add(
        "--num-clips",
        type=int,
        default=8,
        metavar="N",
        help="videos, and clips of each shape, that are measured (default: 8)",
    )
    add("--repeats", type=int, default=5, metavar="N", help="how often (default: 5)")
    add(
        "--steps-per-second",
        type=float,
        metavar="R",
        help="of training, if nothing waited for loading",
    )
    add(
        "--make-videos",
        type=Path,
        metavar="FOLDER",
        help="first make eight videos (340 × 256 pixels, 30 fps, 10 s, H.264) and a store there, and use them",
    )
    return parser.parse_intermixed_args(arguments)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Measure and print, and turn an error into an exit code and one message."""
    options = parse(arguments)
    try:
        found, text = run(options)
    except InputError as error:
        print(f"bench_loader.py: {error}", file=sys.stderr)
        return 2
    except (VideoError, StoreError, OSError) as error:
        print(f"bench_loader.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench_loader.py: interrupted", file=sys.stderr)
        return 4
    print(simplejson.dumps(found, indent=2) if options.json else text)
    return 0


def run(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Return all that was measured, which is also written to --output, and the tables."""
    check(options)
    cfg, problems = read_config(options.cfg, options.overrides)
    raise_problems([*problems, *cross_problems(cfg)])
    made = made_videos(options)
    cfg, problems = read_config(options.cfg, [*options.overrides, *made])
    raise_problems(problems)
    costs = bench(cfg, options)
    found = {
        **costs_json(costs),
        "row": str(options.cfg),
        "overrides": options.overrides,
        "made_videos": bool(made),
        "num_clips": options.num_clips,
        "decoders": [decoder.name for decoder in decoders().values()],
        "environment": describe(),
    }
    if options.output:
        write_json(options.output, found)
    return found, report(costs, options.steps_per_second)


def check(options: argparse.Namespace) -> None:
    """Raise InputError for impossible numbers."""
    numbers = {"--num-clips": options.num_clips, "--repeats": options.repeats}
    rate = not_positive({"--steps-per-second": options.steps_per_second})
    raise_problems([*too_small(numbers), *without_folder({"--output": options.output}), *rate])


def made_videos(options: argparse.Namespace) -> list[str]:
    """Make the videos of --make-videos, and return KEY VALUE pairs that name them."""
    if options.make_videos is None:
        return []
    made = make_bench_videos(options.make_videos, progress=True)
    keys = {"DATA.FORMAT": "list", "DATA.TRAIN_LIST": made.list_file, "DATA.PATH_PREFIX": made.root,
            "DATA.STORE": made.store}  # fmt: skip
    return [str(part) for pair in keys.items() for part in pair]


def bench(cfg: Config, options: argparse.Namespace) -> LoadingCosts:
    """Measure every way on the videos of the row."""
    videos = build_list(cfg, "TRAIN_LIST")
    raise_problems(videos.problems)
    if not videos.records:
        raise InputError(
            [
                f"DATA.TRAIN_LIST: none of its {len(videos.missing)} videos is there: correct DATA.PATH_PREFIX"
            ]
        )
    given = cfg.DATA.NUM_VIDEOS if options.make_videos else None
    num_videos, problems = build_num_videos(cfg, given)
    with collected(problems):
        schedule = build_row_schedule(cfg, num_videos)
    with collected(problems):
        problems += store_problems(build_opener(cfg), cfg.DATA.STORE, videos.records)
    raise_problems(problems)
    legs = legs_of(schedule)
    records = evenly_spaced(videos.records, options.num_clips)
    with one_core():
        timings = measure(
            ways_of(cfg, records), kinds_of(legs), len(records), options.repeats, progress=True
        )
    return LoadingCosts(legs, timings)


def ways_of(cfg: Config, records: Sequence[Record]) -> dict[str, Load]:
    """Return each way by its name; the way of training without a store comes first."""
    found = decoders()
    videos: dict[str, Opener] = {
        f"videos, {name}": decoder.opener for name, decoder in found.items()
    }
    ways = build_loads(cfg, records, videos)
    clips = build_training_clips(cfg, records, found["PyAV"].opener)
    ways["videos, LabeledVideoDataset"] = LabeledVideos(clips)
    if cfg.DATA.STORE:
        store, root = StoreDir(Path(cfg.DATA.STORE)), videos_root(cfg.DATA)
        copies: dict[str, Opener] = {
            f"store, {name}": StoreIndex(store, root, decoder.opener)
            for name, decoder in found.items()
        }
        ways |= build_loads(cfg, records, copies)
    return ways


def decoders() -> dict[str, Decoder]:
    """Return the decoders that work here, PyAV first."""
    pyav, best = choose_decoder("pyav"), choose_decoder("auto")
    return {"PyAV": pyav} if best == pyav else {"PyAV": pyav, "torchcodec": best}


def report(costs: LoadingCosts, steps_per_second: float | None) -> str:
    """Write all tables."""
    tables = [
        clip_table(costs),
        step_table(costs),
        "all clips of the schedule: median (least–most); times less than by the first way\n"
        + way_table(costs),
    ]
    if steps_per_second is not None:
        tables.append(
            f"what {steps_per_second:g} steps per second need\n"
            + demand_table(costs, steps_per_second)
        )
    return "\n\n".join(tables)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
