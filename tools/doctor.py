#!/usr/bin/env python3
"""Say what is wrong with an installation or a machine, and whether multigrid pays here.

    python tools/doctor.py                                     versions, GPU, decoders, disk, speed of decoding
    python tools/doctor.py --cfg ROW.yaml [KEY VALUE ...]      also: precision, steps and loading of that row

With --cfg every shape is checked in TRAIN.PRECISION against fp32, whatever earlier checks found, and timed; close
other programs first. Exit 0: all is well, or warnings only; 3 a problem was found; 2 bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import simplejson
import torch

from mgexp.config.keys import Config
from mgexp.errors import InputError
from mgexp.multigrid.schedule import Schedule, step_counts
from mgexp.plan.doctor import Finding, exit_code, findings_json, findings_table, machine_findings
from mgexp.plan.loading import legs_of

NUM_CLIPS = 4
"""Clips of each kind that loading is timed with."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line; KEY VALUE pairs stay as text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cfg", type=Path, help="YAML of a row, in experiments/")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE")
    return parser.parse_intermixed_args(arguments)


def main(arguments: list[str]) -> int:
    """Prints a line for each finding, or JSON."""
    options = parse(arguments)
    try:
        if options.overrides and not options.cfg:
            raise InputError([f"{' '.join(options.overrides)}: KEY VALUE pairs need --cfg"])
        row = load_row(options) if options.cfg else None
        findings = list(machine_findings())
        if row is not None:
            findings += row_findings(*row)
    except InputError as error:
        print(f"doctor.py: {error}", file=sys.stderr)
        return 2
    except (
        ImportError
    ) as error:  # a torchvision that does not fit, which the machine's findings name
        findings = [*machine_findings(), Finding("row", "problem", str(error), "see INSTALL.md")]
    shown = (
        simplejson.dumps(findings_json(findings), indent=2)
        if options.json
        else findings_table(findings)
    )
    print(shown)
    return exit_code(findings)


def load_row(options: argparse.Namespace) -> tuple[Config, Schedule]:
    """The configuration of the row, and its schedule."""
    from mgexp.config.check import cross_problems
    from mgexp.config.load import read_config
    from mgexp.dist import device_of
    from mgexp.errors import collected, raise_problems
    from mgexp.models.build import build_problems
    from mgexp.models.cost import schedule_shapes
    from mgexp.train.precision import resolve_precision
    from mgexp.train.setup import (
        build_num_videos,
        build_row_schedule,
        device_problems,
    )

    cfg, problems = read_config(options.cfg, options.overrides)
    given = None if has_list(cfg) else cfg.DATA.NUM_VIDEOS or 10**6  # the shapes are the same
    num_videos, found = build_num_videos(cfg, given)
    problems += [*cross_problems(cfg), *found]
    with collected(problems):
        schedule = build_row_schedule(cfg, num_videos)
    problems += device_problems(cfg.DEVICE, torch.cuda.is_available())
    with collected(problems):
        resolve_precision(cfg.TRAIN.PRECISION, device_of(cfg.DEVICE))
    raise_problems(problems)
    raise_problems(build_problems(cfg, schedule_shapes(schedule)))
    return cfg, schedule


def has_list(cfg: Config) -> bool:
    """Whether the training list of the row is here."""
    return bool(cfg.DATA.TRAIN_LIST) and Path(cfg.DATA.TRAIN_LIST).exists()


def row_findings(cfg: Config, schedule: Schedule) -> Iterator[Finding]:
    """Precision, shared memory, steps and loading."""
    from mgexp.dist import device_of
    from mgexp.models.build import build_model
    from mgexp.plan.doctor_row import (
        compute_speedup,
        evenness_finding,
        precision_findings,
        speedup_finding,
        time_steps,
    )
    from mgexp.train.precision import Precision, resolve_precision
    from mgexp.train.precision_check import check_shapes
    from mgexp.train.setup import build_memory_problems
    from mgexp.train.step import Normalizer
    from mgexp.train.task import build_task

    device = device_of(cfg.DEVICE)
    torch.set_num_threads(cfg.TRAIN.NUM_THREADS or torch.get_num_threads())
    model, task, precision = (
        build_model(cfg).to(device),
        build_task(cfg),
        resolve_precision(cfg.TRAIN.PRECISION, device),
    )
    normalizer = Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, device)
    counts = step_counts(schedule)
    shapes = list(counts)
    checked = [] if precision.is_exact else check_shapes(model, shapes, task, normalizer, precision)
    yield from precision_findings(precision, checked)
    for problem in build_memory_problems(cfg, schedule, 1, 1):
        yield Finding("shared memory of the row", "problem", problem, "see the line above")
    is_right = not any(one.faults for one in checked)  # wrong kernels may end the process
    used = precision if is_right else Precision("fp32")
    times = time_steps(model, shapes, task, normalizer, used)
    num_shapes = len({(shape.frames, shape.crop) for shape in shapes})
    yield evenness_finding(times, num_shapes)
    yield speedup_finding(compute_speedup(times, counts, schedule.baseline_steps), num_shapes)
    yield loading(cfg, schedule, sum(one.seconds for one in times) / len(times))


def loading(cfg: Config, schedule: Schedule, step_seconds: float) -> Finding:
    """What loading the row's videos costs, where there are any."""
    from mgexp.data.lists import build_list
    from mgexp.data.loader import build_opener, store_problems
    from mgexp.errors import collected
    from mgexp.plan.doctor_row import loading_finding
    from mgexp.plan.workers import clip_seconds, num_workers_of
    from mgexp.run.environment import num_cores
    from mgexp.video.paths import evenly_spaced
    from mgexp.video.reader import VideoError

    videos = build_list(cfg, "TRAIN_LIST") if has_list(cfg) else None
    if videos is None or not videos.records:
        remedy = "give DATA.TRAIN_LIST and DATA.PATH_PREFIX, and look at tools/check_data.py"
        return Finding("loading", "warning", "not measured: the row's videos are not here", remedy)
    problems: list[str] = []
    with collected(problems):
        problems += store_problems(build_opener(cfg), cfg.DATA.STORE, videos.records)
    if problems:
        return Finding("loading", "problem", problems[0], "see tools/prepare_data.py")
    legs, records = legs_of(schedule), evenly_spaced(videos.records, NUM_CLIPS)
    try:
        seconds = clip_seconds(cfg, records, legs)
    except VideoError as error:
        return Finding("loading", "problem", str(error), "see tools/check_data.py")
    return loading_finding(
        legs, seconds, step_seconds, num_workers_of(cfg), num_cores(), bool(cfg.DATA.STORE)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
