"""Check that a row can train on its schedule, and measure the seconds of its steps and of its clips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from mgexp.config.check import cross_problems
from mgexp.config.keys import Config
from mgexp.config.load import in_fold, read_config
from mgexp.data.lists import build_list
from mgexp.data.loader import build_opener, build_training_clips
from mgexp.dist import device_of, device_problems
from mgexp.errors import InputError, collected, raise_problems
from mgexp.models.build import build_problems
from mgexp.multigrid.schedule import Schedule, StepShape, step_counts
from mgexp.plan.loading import Kind, kinds_of, loader_of, measure, one_core, phase_loads
from mgexp.plan.timing import Step, Stopwatch, TimedSteps, measure_steps
from mgexp.plan.ways import build_training_step
from mgexp.run.files import is_listed
from mgexp.train.precision import resolve_precision
from mgexp.train.setup import build_num_videos, build_row_schedule, build_split_problems
from mgexp.video.paths import evenly_spaced
from mgexp.video.reader import VideoError

MANY_VIDEOS = 10**6
"""Number of videos for a schedule whose length does not matter: enough for a step of each shape."""

NUM_WARMUP = 2
"""Steps of each shape before the timed ones. They prepare memory and libraries for the shape."""

NUM_LOADED = 4
"""Number of videos whose clips are timed."""


def build_checked_schedule(
    cfg: Config,
    problems: Iterable[str],
    num_videos: int = MANY_VIDEOS,
    num_processes: int = 1,
    checks_model: bool = True,
) -> Schedule:
    """Build a schedule and check the model. Raises InputError with ``problems`` and all others."""
    problems = [*problems, *cross_problems(cfg)]
    with collected(problems):
        schedule = build_row_schedule(cfg, num_videos, num_processes)
    raise_problems(problems)
    if checks_model:
        raise_problems(build_problems(cfg, schedule.sizes))
        raise_problems(build_split_problems(cfg, schedule))
    return schedule


def build_row_here(
    path: Path, overrides: Sequence[str], num_processes: int = 1
) -> tuple[Config, Schedule]:
    """Read a row, and check that this machine can train it. Raises InputError with all problems."""
    cfg, problems = read_config(path, overrides)
    num_videos, more = build_num_videos(cfg, None)
    num_gpus = torch.cuda.device_count()
    problems += [*more, *device_problems(cfg.DEVICE, num_gpus, cfg.TRAIN.COMPILE)]
    with collected(problems):
        resolve_precision(cfg.TRAIN.PRECISION, device_of(cfg.DEVICE))
    return cfg, build_checked_schedule(cfg, problems, num_videos, num_processes)


@dataclass(frozen=True)
class Measurement:
    """The timed steps of a row in one process, and the core seconds of a clip of each kind, if it has videos."""

    steps: Mapping[StepShape, TimedSteps]
    clips: Mapping[Kind, float] | None

    @property
    def clip_seconds(self) -> list[list[float]]:
        """List [frames, crop, seconds of a clip in its largest mini-batch], for MULTIGRID.CLIP_SECONDS."""
        by_clips = sorted(self.steps.items(), key=lambda item: item[0].clips)
        seconds = {(s.frames, s.crop): timed.median / s.clips for s, timed in by_clips}
        return [[*size, float(f"{value:.4g}")] for size, value in sorted(seconds.items())]


def build_measurement(cfg: Config, schedule: Schedule, num_steps: int) -> Measurement:
    """Time the loading of each kind of clip and the steps. Raises InputError if a video or the memory fails."""
    clips = build_loading_seconds(cfg, schedule)
    device = device_of(cfg.DEVICE)
    torch.set_num_threads(cfg.TRAIN.NUM_THREADS or torch.get_num_threads())
    way = build_training_step(cfg, device)

    def in_one_process(shape: StepShape) -> Step:
        # If BN groups span processes, this process has no others to share them with. Its clips
        # then form one group, which costs the same except for the messages between processes.
        return way(replace(shape, num_bn_groups=max(1, shape.num_bn_groups)))

    shapes = [*step_counts(schedule)]
    try:
        timed = measure_steps(
            {"": in_one_process}, shapes, num_steps, NUM_WARMUP, Stopwatch(device), progress=True
        )
    except torch.OutOfMemoryError as error:
        raise InputError([f"a mini-batch does not fit into the memory: {error}"]) from error
    return Measurement(timed[""], clips)


def build_loading_seconds(cfg: Config, schedule: Schedule) -> dict[Kind, float] | None:
    """Time each kind of clip on one core; None without videos. Raises InputError for a bad list or video."""
    cfg = in_fold(cfg)
    if not is_listed(cfg.DATA.TRAIN_LIST):
        return None
    videos = build_list(cfg, "TRAIN_LIST")
    raise_problems(videos.problems)
    if not videos.records:
        return None
    records = evenly_spaced(videos.records, NUM_LOADED)
    ways = {"": loader_of(build_training_clips(cfg, records, build_opener(cfg)))}
    try:
        with one_core():
            timed = measure(ways, kinds_of(phase_loads(schedule)), len(records))
    except VideoError as error:
        raise InputError([str(error)]) from error
    return {kind: value for kind, (value,) in timed[""].items()}
