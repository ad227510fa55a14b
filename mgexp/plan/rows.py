"""From configurations to what a prediction needs: schedules, and measurements on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from mgexp.config.check import cross_problems
from mgexp.config.keys import Config
from mgexp.data.clips import Batch
from mgexp.data.lists import build_list, videos_root
from mgexp.data.loader import build_opener
from mgexp.data.records import Record
from mgexp.dist import device_of
from mgexp.errors import InputError, collected, raise_problems
from mgexp.models.build import build_problems
from mgexp.models.cost import num_params, schedule_shapes
from mgexp.models.layers import Draws
from mgexp.multigrid.schedule import Schedule, StepShape
from mgexp.optim.build import set_lr
from mgexp.plan.communication import Communication
from mgexp.plan.loading import Kind, Load, Timings, kinds_of, legs_of, measure, one_core
from mgexp.plan.machine import synchronizer
from mgexp.plan.measured import Measurement
from mgexp.plan.predict import Resources, RowPrediction, leg_shapes, predict
from mgexp.plan.timing import QuickTimes
from mgexp.plan.timing import StepQuickTimes as Step
from mgexp.plan.ways import build_loads, build_training_step
from mgexp.plan.workers import num_workers_of
from mgexp.run.environment import num_cores
from mgexp.train.setup import build_num_videos, build_row_schedule, clip_bytes
from mgexp.train.step import keep_memory
from mgexp.train.task import build_task
from mgexp.video.paths import evenly_spaced
from mgexp.video.reader import VideoError
from mgexp.video.store import StoreIndex
from mgexp.video.store_encode import DEFAULT_QUANTIZER, Coding
from mgexp.video.store_fill import Order, sample_store

NUM_VIDEOS = 10**6
"""Any number gives the same shapes, if it is large enough for a step of each."""


def build_shapes(cfg: Config, problems: Iterable[str], num_processes: int = 1) -> Schedule:
    """The schedule in ``num_processes``, of shapes that the model takes; any number of videos would do.

    Raises InputError with ``problems``, those of reading ``cfg`` and of the command line, and all others.
    """
    found = [*problems, *cross_problems(cfg)]
    with collected(found):
        schedule = build_row_schedule(cfg, NUM_VIDEOS, num_processes)
    raise_problems(found)
    raise_problems(build_problems(cfg, schedule_shapes(schedule)))
    return schedule


LOADING_SHARE = 0.25
"""Of the budget: clips take milliseconds and differ little, steps are what a prediction hangs on (our choice)."""

BYTES_PER_GRADIENT = 4  # fp32
AS_CONFIGURED = "as configured"


@dataclass(frozen=True)
class Row:
    """A row that is planned; ``num_videos`` are its training videos."""

    name: str
    cfg: Config
    num_videos: int

    def schedule(self, num_gpus: int, clips_factor: int = 1) -> Schedule:
        """On ``num_gpus`` processes with ``clips_factor`` times the recipe's clips; InputError if impossible."""
        try:
            return build_row_schedule(scaled(self.cfg, clips_factor), self.num_videos, num_gpus)
        except InputError as error:
            where = f"{self.name} on {num_gpus} GPUs"
            raise InputError([f"{where}: {problem}" for problem in error.problems]) from error


def build_row(cfg: Config, name: str) -> Row:
    """The row ``name``; raises InputError where its number of videos is not known."""
    num_videos, problems = build_num_videos(cfg, None)
    raise_problems(problems)
    return Row(name, cfg, num_videos)


def scaled(cfg: Config, clips_factor: int) -> Config:
    """``cfg`` with so many times the clips of the baseline's mini-batch; frozen."""
    clips = cfg.TRAIN.BATCH_SIZE * clips_factor
    return replace(cfg, TRAIN=replace(cfg.TRAIN, BATCH_SIZE=clips))


def measure_rows(
    rows: Sequence[Row], budget_seconds: float, num_gpus: int = 1, levels: Sequence[int] = ()
) -> Measurement:
    """Times loading and steps of all ``rows`` on this machine, in ``budget_seconds`` if these suffice.

    The mini-batches are those of one of ``num_gpus`` processes; model and videos are those of the first row.
    ``levels``: short sides of a clip store that is tried on a sample. Raises InputError for bad input.
    """
    start = time.perf_counter()
    raise_problems(model_differences(rows))
    cfg = rows[0].cfg
    schedules = [row.schedule(num_gpus) for row in rows]
    loading = measure_loading(cfg, schedules, LOADING_SHARE * budget_seconds, levels)
    cycles = [shapes for one in schedules for _, shapes in leg_shapes(one, num_gpus)]
    threads = torch.get_num_threads()
    torch.set_num_threads(cfg.TRAIN.NUM_THREADS or threads)
    try:
        model_step, num_parameters = build_timed_step(cfg, cycles)
        left = budget_seconds - (time.perf_counter() - start)
        steps = QuickTimes(model_step, left).measure(cycles)
    except torch.OutOfMemoryError as error:
        problem = f"a mini-batch of one of {num_gpus} GPUs does not fit into this one: {error}"
        raise InputError([f"{problem}; plan for more with --num-gpus"]) from error
    finally:
        torch.set_num_threads(threads)
    return Measurement(
        steps=steps,
        loading={name: timings.median() for name, timings in loading.items()},
        gradient_bytes=BYTES_PER_GRADIENT * num_parameters,
        num_gpus=num_gpus,
        num_workers=num_workers_of(cfg),
        num_cores=num_cores(),
        device=device_of(cfg.DEVICE).type,
        seconds=time.perf_counter() - start,
    )


def model_differences(rows: Sequence[Row]) -> list[str]:
    """Rows whose models are not that of the first, so that their steps cannot be timed together."""
    first, *others = rows
    sections = ("MODEL", "RESNET", "SLOWFAST", "NONLOCAL")
    return [
        f"{first.name} and {row.name} have different models: plan them apart, with --rows"
        for row in others
        if any(getattr(row.cfg, section) != getattr(first.cfg, section) for section in sections)
    ]


def predict_rows(
    rows: Sequence[Row],
    measurement: Measurement,
    resources: Resources,
    communication: Communication,
    gpu_counts: Sequence[int],
    is_linear: bool = False,
) -> list[RowPrediction]:
    """Every row on every number of GPUs; ``is_linear``: as many clips on each GPU as where it was measured.

    Raises InputError where that is impossible, or a shape was not measured.
    """
    found, problems = [], []
    for num_gpus in gpu_counts:
        factor, rest = divmod(num_gpus, measurement.num_gpus)
        if is_linear and rest:
            raise InputError(
                [
                    f"{num_gpus} GPUs are no multiple of the {measurement.num_gpus} of the measurement"
                ]
            )
        for row in rows:
            schedule = row.schedule(num_gpus, factor if is_linear else 1)
            try:
                found.append(
                    predict(
                        row.name,
                        schedule,
                        measurement.steps,
                        measurement.configured_loading,
                        resources,
                        communication,
                        num_gpus,
                    )
                )
            except (ValueError, KeyError) as error:
                problems.append(f"{row.name} on {num_gpus} GPUs: {error}; measure again")
    raise_problems(problems)
    return found


def build_timed_step(cfg: Config, cycles: Sequence[Sequence[StepShape]]) -> tuple[Step, int]:
    """A training step of the model of ``cfg`` on random clips, and the number of its parameters.

    The learning rate is 0: random labels teach nothing, and the work is the same.
    """
    device = device_of(cfg.DEVICE)
    if device.type == "cpu":
        keep_memory()  # as in a run
    train_step = build_training_step(cfg, device).step
    set_lr(train_step.optimizer, 0.0)
    most = max(s.clips * clip_bytes(s.frames, s.crop) for shapes in cycles for s in shapes)
    pixels = torch.randint(0, 256, (most,), dtype=torch.uint8)
    task, wait = build_task(cfg), synchronizer(device)

    def step(shape: StepShape) -> None:
        clips = clips_in(pixels, shape).to(device)
        batch = Batch(clips, task.no_labels(shape.clips, device), ())
        train_step(batch, max(1, shape.num_bn_groups), Draws(seed=0, step=0))
        wait()

    return step, num_params(train_step.model)


def clips_in(pixels: torch.Tensor, shape: StepShape) -> torch.Tensor:
    """A view of the first ``pixels`` as uint8 clips (B, 3, T, S, S), channels last as a loader's."""
    size = (shape.clips, shape.frames, shape.crop, shape.crop, 3)
    count = shape.clips * clip_bytes(shape.frames, shape.crop)
    return pixels[:count].view(size).permute(0, 4, 1, 2, 3)


def measure_loading(
    cfg: Config,
    schedules: Sequence[Schedule],
    budget_seconds: float,
    levels: Sequence[int],
    num_videos: int = 2,
) -> dict[str, Timings]:
    """Core seconds of a clip of each kind, as configured and from a store of ``levels``; none without videos.

    Raises InputError where a list is wrong or a video fails.
    """
    records = records_of(cfg, num_videos)
    if not records:
        return {}
    kinds = kinds_of(tuple(leg for schedule in schedules for leg in legs_of(schedule)))
    try:
        with one_core():
            openers = {AS_CONFIGURED: build_opener(cfg)}
            if not levels:
                ways = build_loads(cfg, records, openers)
                return timed(ways, kinds, len(records), budget_seconds)
            root = videos_root(cfg.DATA)
            paths = [os.path.relpath(record.path, root) for record in records]
            order = Order(root, tuple(levels), Coding(DEFAULT_QUANTIZER))
            with sample_store(order, paths, len(paths)) as sample:
                openers[store_name(levels)] = StoreIndex(sample.store, root)
                ways = build_loads(cfg, records, openers)
                return timed(ways, kinds, len(records), budget_seconds)
    except VideoError as error:
        raise InputError([str(error)]) from error


def records_of(cfg: Config, num: int) -> tuple[Record, ...]:
    """Some training videos of ``cfg``; none where it names no list."""
    if not cfg.DATA.TRAIN_LIST or not Path(cfg.DATA.TRAIN_LIST).exists():
        return ()
    videos = build_list(cfg, "TRAIN_LIST")
    raise_problems(videos.problems)
    return tuple(evenly_spaced(videos.records, num)) if videos.records else ()


def timed(
    ways: Mapping[str, Load], kinds: Sequence[Kind], num_videos: int, budget_seconds: float
) -> dict[str, Timings]:
    """Repeats the measurement until the budget is spent, once at least."""
    start = time.perf_counter()
    found: dict[str, dict[Kind, list[float]]] = {
        name: {kind: [] for kind in kinds} for name in ways
    }
    while True:
        before = time.perf_counter()
        for name, timings in measure(ways, kinds, num_videos, 1).items():
            for kind, seconds in timings.by_kind.items():
                found[name][kind] += seconds
        now = time.perf_counter()
        if now - start + (now - before) > budget_seconds:  # another round would not fit
            return {
                name: Timings({kind: tuple(seconds) for kind, seconds in by_kind.items()})
                for name, by_kind in found.items()
            }


def store_name(levels: Sequence[int]) -> str:
    """As advice says it."""
    return f"a clip store of short sides {', '.join(map(str, levels))}"
