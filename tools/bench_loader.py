#!/usr/bin/env python3
"""Measure what loading the clips of a row costs on this machine, phase by phase.

    python tools/bench_loader.py --cfg ROW.yaml DATA.TRAIN_LIST train.csv DATA.PATH_PREFIX videos DATA.STORE store
    python tools/bench_loader.py --cfg ROW.yaml --make-videos runs/bench_videos     makes videos and a store first

One process on one core, like a loader worker, loads the same clips in several ways, in turns: from the videos,
and from the clip store (DATA.STORE, if it is set). The transfer of a batch from
a worker to training is not measured. With --steps-per-second, the rate of training when it does not wait for
clips, a last table shows how many cores keep up (DATA_LOADER.NUM_WORKERS). One rate is enough, because computing
a step takes about equally long in every phase.
Close other programs first. Exit 0; 1 failed, for example on a video; 2 bad input; 4 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import simplejson

from mgexp.config.check import cross_problems
from mgexp.config.keys import Config
from mgexp.config.load import read_config
from mgexp.data.lists import build_list
from mgexp.data.loader import build_opener, build_training_clips, store_problems
from mgexp.errors import InputError, collected, raise_problems
from mgexp.options import (
    ToolParser,
    local_folder,
    not_positive,
    run_tool,
    say,
    too_small,
    without_folder,
)
from mgexp.plan.loading import (
    Kind,
    PhaseLoad,
    kinds_of,
    loader_of,
    measure,
    one_core,
    phase_loads,
)
from mgexp.run.environment import describe
from mgexp.run.files import write_json
from mgexp.text import aligned
from mgexp.train.setup import build_num_videos, build_row_schedule
from mgexp.video.frame_folder import FilesAndFolders
from mgexp.video.paths import evenly_spaced
from mgexp.video.reader import Opener, VideoError

# Code that is used only to measure is not a part of the package. It is in benchmarks/, beside its results.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from bench_videos import make_bench_videos
from measuring import add_measuring_options, spread

Seconds = Mapping[Kind, Sequence[float]]
"""Seconds per clip of each kind: a number for each repeat, which is the mean over the videos."""


def table(
    found: Mapping[str, Any],
    title: str,
    columns: Mapping[str, Callable[[Mapping[str, Any]], str]],
    cell: Callable[[Mapping[str, Any], float], str],
) -> str:
    """Write ``title``, and a line per phase: its shapes, ``columns``, and a cell for each way to load.

    ``cell`` writes the text of a cell from the phase and the core seconds of its steps.
    """
    rows = [("frames", "crops", *columns, *found["ways"])]
    steps = [costs["core_seconds_per_step"] for costs in found["ways"].values()]
    for phase, *seconds in zip(found["phases"], *steps, strict=True):
        own = [write(phase) for write in columns.values()]
        cells = [cell(phase, value) for value in seconds]
        rows.append((str(phase["frames"]), " ".join(map(str, phase["crops"])), *own, *cells))
    return f"{title}\n{aligned(rows)}"


def stride_text(phase: Mapping[str, Any]) -> str:
    if phase["stride_range"] is None:
        return "segments"
    return "–".join(map(str, dict.fromkeys(phase["stride_range"])))


def way_table(found: Mapping[str, Any]) -> str:
    """Write a line per way to load: its cost over the whole schedule."""
    rows = [
        ("", "ms per clip", "clips/s per core", "times cheaper", "dearest / cheapest step", "hours")
    ]
    for way, costs in found["ways"].items():
        rate = 1000 / median(costs["ms_per_clip"])
        rows.append(
            (
                way,
                spread(costs["ms_per_clip"]),
                f"{rate:.0f}",
                spread(costs["times_less"], 1),
                f"{costs['dearest_to_cheapest_step']:.2f}",
                f"{costs['core_hours']:.2f}",
            )
        )
    return aligned(rows)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__, "--cfg YAML [options] [KEY VALUE ...]")
    add_measuring_options(parser)
    add = parser.add_argument
    text = "number of videos to load, with one clip of each shape from each (default: 8)"
    add("--num-clips", type=int, default=8, metavar="N", help=text)
    add("--repeats", type=int, default=5, metavar="N", help="number of measurements (default: 5)")
    text = "rate of training when it does not wait for clips"
    add("--steps-per-second", type=float, metavar="R", help=text)
    text = "first make eight videos (340 × 256 pixels, 30 fps, 10 s, H.264) and a store there, and use them"
    add("--make-videos", type=local_folder, metavar="FOLDER", help=text)
    return parser.parse_intermixed_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure and print. Turn an error into one message and an exit code."""
    options = parse(arguments)
    try:
        found, text = run(options)
    except (VideoError, OSError) as error:
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
        made = make_bench_videos(options.make_videos, progress=True)
    cfg, problems = read_config(options.cfg, [*options.overrides, *made])
    raise_problems(problems)
    found = {
        **bench(cfg, options),
        "row": str(options.cfg),
        "overrides": options.overrides,
        "made_videos": bool(made),
        "num_clips": options.num_clips,
        "environment": describe(),
    }
    if options.output:
        write_json(options.output, found)
    return found, report(found, options.steps_per_second)


def bench(cfg: Config, options: argparse.Namespace) -> dict[str, Any]:
    """Measure every way on the videos of the row, and return the costs for JSON."""
    videos = build_list(cfg, "TRAIN_LIST")
    raise_problems(videos.problems)
    if not videos.records:
        problem = f"DATA.TRAIN_LIST: none of its {len(videos.missing)} videos is there"
        raise InputError([f"{problem}: correct DATA.PATH_PREFIX"])
    given = cfg.DATA.NUM_VIDEOS if options.make_videos else None
    num_videos, problems = build_num_videos(cfg, given)
    with collected(problems):
        schedule = build_row_schedule(cfg, num_videos)
    ways: dict[str, Opener] = {"videos": FilesAndFolders(cfg.DATA.FRAMES_FPS)}
    if cfg.DATA.STORE:
        with collected(problems):
            ways["store"] = build_opener(cfg)
            problems += store_problems(ways["store"], cfg.DATA.STORE, videos.records)
    raise_problems(problems)
    loads = phase_loads(schedule)
    records = evenly_spaced(videos.records, options.num_clips)
    with one_core():
        timings = measure(
            {
                way: loader_of(build_training_clips(cfg, records, opener))
                for way, opener in ways.items()
            },
            kinds_of(loads),
            len(records),
            options.repeats,
            progress=True,
        )
    return costs_json(loads, timings)


def report(found: Mapping[str, Any], rate: float | None) -> str:
    """Write all tables of ``costs_json``. ``rate``: --steps-per-second."""
    columns = {
        "stride": stride_text,
        "steps": lambda phase: str(phase["steps"]),
        "clips/step": lambda phase: f"{phase['clips_per_step']:.1f}",
    }
    parts = [
        table(
            found,
            "ms per clip",
            columns,
            lambda phase, seconds: f"{1000 * seconds / phase['clips_per_step']:.2f}",
        ),
        table(found, "core s per step", columns, lambda _, seconds: f"{seconds:.2f}"),
        "all clips of the schedule: median (least–most); how many times cheaper than the first way\n"
        + way_table(found),
    ]
    if rate is not None:
        rates = {"clips/s": lambda phase: f"{rate * phase['clips_per_step']:.0f}"}
        title = f"cores that {rate:g} steps per second need"
        parts.append(table(found, title, rates, lambda _, seconds: f"{rate * seconds:.1f}"))
    return "\n\n".join(parts)


def costs_json(loads: Sequence[PhaseLoad], ways: Mapping[str, Seconds]) -> dict[str, Any]:
    """Return the cost of the phases of a schedule in each way to load, for JSON. The first way is the reference.

    A list has a number for each repeat, or for each phase. All others follow from the medians over the repeats.
    """

    def core_seconds(seconds: Mapping[Kind, float]) -> float:
        return sum(load.num_steps * load.core_seconds_per_step(seconds) for load in loads)

    num_clips = sum(load.num_steps * load.clips_per_step for load in loads)
    # Of one core in each repeat, as a mean over all clips of the schedule.
    ms_per_clip = {
        way: [
            1000 * core_seconds(dict(zip(by_kind, repeat, strict=True))) / num_clips
            for repeat in zip(*by_kind.values(), strict=True)
        ]
        for way, by_kind in ways.items()
    }
    first = next(iter(ms_per_clip.values()))
    phases = [
        {
            "frames": load.cycle.base.frames,
            "crops": [shape.crop for shape in load.cycle.shapes],
            "stride_range": load.stride_range,
            "steps": load.num_steps,
            "clips_per_step": load.clips_per_step,
        }
        for load in loads
    ]
    found = {}
    for way, by_kind in ways.items():
        medians = {kind: median(values) for kind, values in by_kind.items()}
        per_step = [load.core_seconds_per_step(medians) for load in loads]
        kinds = [
            {
                **dict(zip(("frames", "crop", "stride_range"), kind, strict=True)),
                "ms_per_clip": [1000 * value for value in by_kind[kind]],
            }
            for kind in kinds_of(loads)
        ]
        found[way] = {
            "ms_per_clip": ms_per_clip[way],
            "times_less": [other / own for other, own in zip(first, ms_per_clip[way], strict=True)],
            "core_seconds_per_step": per_step,
            "dearest_to_cheapest_step": max(per_step) / min(per_step),
            "core_hours": core_seconds(medians) / 3600,
            "kinds": kinds,
        }
    return {"phases": phases, "ways": found}


if __name__ == "__main__":
    sys.exit(run_tool(main))
