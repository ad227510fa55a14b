#!/usr/bin/env python3
"""Measure what loading the clips of a row costs on this machine, phase by phase.

    python tools/bench_loader.py --cfg ROW.yaml DATA.TRAIN_LIST train.csv DATA.PATH_PREFIX videos DATA.STORE store
    python tools/bench_loader.py --cfg ROW.yaml --make-videos runs/bench_videos     makes videos and stores first

One process on one core, like a loader worker, loads the same clips in several ways, in turns: from the videos,
from the clip store (DATA.STORE, if it is set), and from a store in shards (--shards). The transfer of a batch from
a worker to training is not measured. With --steps-per-second, the rate of training when it does not wait for
clips, a last table shows how many cores keep up (DATA_LOADER.NUM_WORKERS). One rate is enough, because computing
a step takes about equally long in every phase.
Close other programs first. Exit 0; 1 failed, for example on a video; 2 bad input; 4 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import simplejson

from mgexp.config.check import cross_problems
from mgexp.config.keys import Config
from mgexp.config.load import in_fold, read_config
from mgexp.data.lists import build_list, videos_root
from mgexp.data.loader import build_opener, build_training_clips, store_problems
from mgexp.data.records import Record
from mgexp.errors import InputError, collected, raise_problems
from mgexp.options import (
    ToolParser,
    add_measuring_options,
    local_folder,
    not_positive,
    run_tool,
    say,
    too_small,
    without_folder,
)
from mgexp.plan.loading import (
    Load,
    LoadingCosts,
    clip_table,
    kinds_of,
    leg_table,
    legs_of,
    loader_of,
    measure,
    one_core,
    way_table,
)
from mgexp.run.environment import describe
from mgexp.run.files import write_json
from mgexp.text import aligned
from mgexp.train.setup import build_num_videos, build_row_schedule
from mgexp.video.frame_folder import FilesAndFolders
from mgexp.video.paths import evenly_spaced
from mgexp.video.reader import Opener, VideoError
from mgexp.video.store import StoreIndex, open_store
from mgexp.video.store_fill import StoreError

# Code that is used only to measure is not a part of the package. It is in benchmarks/, beside its results.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from bench_videos import make_bench_videos


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line. KEY VALUE pairs stay text, because the configuration knows their types."""
    parser = ToolParser(__doc__, "--cfg YAML [options] [KEY VALUE ...]")
    add_measuring_options(parser)
    add = parser.add_argument
    add(
        "--num-clips",
        type=int,
        default=8,
        metavar="N",
        help="number of videos to load, with one clip of each shape from each (default: 8)",
    )
    add("--repeats", type=int, default=5, metavar="N", help="number of measurements (default: 5)")
    add(
        "--steps-per-second",
        type=float,
        metavar="R",
        help="rate of training when it does not wait for clips",
    )
    add(
        "--shards",
        type=Path,
        metavar="STORE",
        help="another clip store of the videos, packed by prepare_data.py --shards, to compare with",
    )
    add(
        "--make-videos",
        type=local_folder,
        metavar="FOLDER",
        help="first make eight videos (340 × 256 pixels, 30 fps, 10 s, H.264) and stores there, and use them",
    )
    return parser.parse_intermixed_args(arguments)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Measure and print. Turn an error into one message and an exit code."""
    options = parse(arguments)
    try:
        found, text = run(options)
    except (VideoError, StoreError, OSError) as error:
        say(str(error))
        return 1
    print(simplejson.dumps(found, indent=2) if options.json else text)
    return 0


def run(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Measure, write --output, and return the numbers for JSON and the tables as text."""
    numbers = {"--num-clips": options.num_clips, "--repeats": options.repeats}
    rate = not_positive({"--steps-per-second": options.steps_per_second})
    raise_problems([*too_small(numbers), *without_folder({"--output": options.output}), *rate])
    # Check the row before the videos are made, which takes a while. Read it again afterwards, with the keys that
    # select these videos.
    cfg, problems = read_config(options.cfg, options.overrides)
    if options.make_videos and not cfg.DATA.NUM_VIDEOS:
        problems.append("--make-videos needs the number of training videos: add DATA.NUM_VIDEOS N")
    raise_problems([*problems, *cross_problems(cfg)])
    made: list[str] = []
    if options.make_videos is not None:
        videos = make_bench_videos(options.make_videos, progress=True)
        made, options.shards = videos.pairs(), options.shards or videos.shards
    cfg, problems = read_config(options.cfg, [*options.overrides, *made])
    raise_problems(problems)
    costs = bench(cfg, options)
    found = {
        **costs_json(costs),
        "row": str(options.cfg),
        "overrides": options.overrides,
        "made_videos": bool(made),
        "num_clips": options.num_clips,
        "environment": describe(),
    }
    if options.output:
        write_json(options.output, found)
    return found, report(costs, options.steps_per_second)


def bench(cfg: Config, options: argparse.Namespace) -> LoadingCosts:
    """Measure every way on the videos of the row."""
    if options.shards and not any(options.shards.glob("*/*.tar")):
        raise InputError([f"--shards {options.shards} is no clip store in shards"])
    videos = build_list(cfg, "TRAIN_LIST")
    raise_problems(videos.problems)
    if not videos.records:
        problem = f"DATA.TRAIN_LIST: none of its {len(videos.missing)} videos is there"
        raise InputError([f"{problem}: correct DATA.PATH_PREFIX"])
    given = cfg.DATA.NUM_VIDEOS if options.make_videos else None
    num_videos, problems = build_num_videos(cfg, given)
    with collected(problems):
        schedule = build_row_schedule(cfg, num_videos)
    stores = {
        name: str(folder)
        for name, folder in (("store", cfg.DATA.STORE), ("shards", options.shards))
        if folder
    }
    for folder in stores.values():
        with collected(problems):
            opener = build_opener(replace(cfg, DATA=replace(cfg.DATA, STORE=folder)))
            problems += store_problems(opener, folder, videos.records)
    raise_problems(problems)
    legs = legs_of(schedule)
    records = evenly_spaced(videos.records, options.num_clips)
    with one_core():
        timings = measure(
            ways_of(cfg, records, stores),
            kinds_of(legs),
            len(records),
            options.repeats,
            progress=True,
        )
    return LoadingCosts(legs, timings)


def ways_of(cfg: Config, records: Sequence[Record], stores: Mapping[str, str]) -> dict[str, Load]:
    """Return each way by its name; ``stores`` are folders of clip stores by name.

    The first one is the way of training without a store.
    """
    fps = cfg.DATA.FRAMES_FPS
    videos, root = FilesAndFolders(fps), videos_root(in_fold(cfg).DATA)
    ways: dict[str, Opener] = {"videos": videos}
    for way, folder in stores.items():
        ways[way] = StoreIndex(open_store(folder), root, videos, fps)
    return {
        way: loader_of(build_training_clips(cfg, records, opener)) for way, opener in ways.items()
    }


def report(costs: LoadingCosts, steps_per_second: float | None) -> str:
    """Write all tables."""
    tables = [
        clip_table(costs),
        leg_table(costs, "core s per step", lambda _, seconds: f"{seconds:.2f}"),
        "all clips of the schedule: median (least–most); how many times cheaper than the first way\n"
        + way_table(costs),
    ]
    if steps_per_second is not None:
        tables.append(
            f"what {steps_per_second:g} steps per second need\n"
            + demand_table(costs, steps_per_second)
        )
    return "\n\n".join(tables)


def demand_table(costs: LoadingCosts, steps_per_second: float) -> str:
    """Write a line for each leg: the clips per second at ``steps_per_second``, and the cores for each way."""
    head = ("frames", "crops", "clips/s", *(f"cores: {way}" for way in costs.ways))
    steps = [costs.per_step(way) for way in costs.ways]
    rows = [
        (
            str(leg.cycle.base.frames),
            " ".join(str(shape.crop) for shape in leg.cycle.shapes),
            f"{steps_per_second * leg.clips_per_step:.0f}",
            *(f"{steps_per_second * seconds[index]:.1f}" for seconds in steps),
        )
        for index, leg in enumerate(costs.legs)
    ]
    return aligned([head, *rows])


def costs_json(costs: LoadingCosts) -> dict[str, Any]:
    """Return every cost of loading for JSON."""
    legs = [
        {
            "frames": leg.cycle.base.frames,
            "crops": [shape.crop for shape in leg.cycle.shapes],
            "stride_range": leg.stride_range,
            "steps": leg.num_steps,
            "clips_per_step": leg.clips_per_step,
        }
        for leg in costs.legs
    ]
    ways = {}
    for way, seconds in costs.ways.items():
        kinds = [
            {
                **dict(zip(("frames", "crop", "stride_range"), kind, strict=True)),
                "ms_per_clip": [1000 * value for value in seconds[kind]],
            }
            for kind in kinds_of(costs.legs)
        ]
        ways[way] = {
            "ms_per_clip": costs.ms_per_clip(way),
            "times_less": costs.times_less(way),
            "core_seconds_per_step": costs.per_step(way),
            "dearest_to_cheapest_step": costs.unevenness(way),
            "core_hours": costs.core_hours(way),
            "kinds": kinds,
        }
    return {"legs": legs, "ways": ways}


if __name__ == "__main__":
    sys.exit(run_tool(main))
